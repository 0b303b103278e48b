"""The bases of strategies with several processes, and how these communicate."""
