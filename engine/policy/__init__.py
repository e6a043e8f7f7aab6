"""The bridge.

Compiled policies as plugins. The only room that knows both the language and the engine.
"""
