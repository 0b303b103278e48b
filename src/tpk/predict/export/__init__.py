"""Exports of trained models, for programs without tpk."""
