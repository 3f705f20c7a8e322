"""OpenRelay: the control plane of a GPU cloud."""

__version__ = "0.1.0"
