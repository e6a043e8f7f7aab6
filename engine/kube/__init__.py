"""The edge to the API server.

Session, reflector, writer, events. The rest of the engine sees protocols.
"""
