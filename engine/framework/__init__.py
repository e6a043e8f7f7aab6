"""The public interface of the engine: the words and contracts that every room shares.

Third parties who write plugins import this package and nothing else. It holds no machinery but
`runtime`, which asks the plugins of one profile in order.
"""
