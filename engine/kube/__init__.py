"""The edge to the API server: session, reflector, writer, events. The rest of the engine sees protocols."""
