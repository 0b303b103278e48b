"""Monitors receive the reports of a training run (scalars, images, histograms, summaries), and show or store them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
