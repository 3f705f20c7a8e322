"""The people and things that the examples of the schema speak of, the same throughout."""

from typing import Final

NORTHWIND: Final = "01985a3e-7c10-7d3a-9c51-2f4e8a6b1c01"  # a provider
PLATFORM: Final = "01985a3e-7c10-7d3a-9c51-2f4e8a6b1c02"  # the operators
LUMEN: Final = "01985a3e-7c10-7d3a-9c51-2f4e8a6b1c03"  # a tenant
BROKER: Final = "01985a3e-7c10-7d3a-9c51-2f4e8a6b1c04"  # manages reserved capacity for Northwind
ADA: Final = "01985a3e-8f00-7b12-8a77-1d2c3b4a5f10"
KEY: Final = "01985a3f-0a20-7e45-b1d3-4c5b6a798811"
ROLE: Final = "01985a3f-1b28-7f56-92e4-6d7c8b9aa012"
NODE: Final = "01985a3f-2b30-7c66-8e20-5a6b7c8d9e21"
H100: Final = "01985a3f-1c00-7a01-9b02-0f1e2d3c4b31"
RESERVATION: Final = "01985a40-3d40-7f88-a3c4-6b7a8f9e0d41"
TRAINER: Final = "01985a41-4e50-7d99-b5e6-7c8b9a0f1e51"
RENDER: Final = "01985a41-5f60-7ea0-86f7-8d9c0b1a2f52"
RUN: Final = "01985a41-6a70-7bb1-97a8-9e0d1c2b3a53"
SSH_KEY: Final = "01985a3f-3c40-7dc2-a8b9-0f1e2d3c4b61"
EVENT: Final = "01985a40-7b80-7ed3-b9c0-1a2f3e4d5c71"
UNITS: Final = ("0000:10:00.0", "0000:20:00.0", "0000:30:00.0", "0000:40:00.0")
PUBLIC_KEY: Final = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHnIwBNs4Xm1oZbYz0XK3bF8nq7vT2cR5dLwQp9sEaUj"
