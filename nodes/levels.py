"""Agent levels: each adds a capability and includes those of the lower levels."""

from typing import Final

BASE: Final = 1
INFINIBAND: Final = 2  # gives pods their address on the node's InfiniBand fabric
AMD_GRANT: Final = 3  # grants pods AMD GPUs

LATEST: Final = AMD_GRANT

# An agent sends its level and version in these headers with every call.
LEVEL_HEADER: Final = "OpenRelay-Agent-Level"
VERSION_HEADER: Final = "OpenRelay-Agent-Version"
