"""Monitors take what training reports (scalars, images, histograms, summaries), and show or keep it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
