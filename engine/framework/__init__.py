"""The public interface of the engine: the words and contracts that every room shares.

Third parties who write plugins import this package, `engine.pods` and `engine.objects`. It holds no
machinery but `runtime`, which asks the plugins of one profile in order.
"""
