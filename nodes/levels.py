"""What an agent can do, by the level that it says it is of. A higher level can all that a lower one can."""

from typing import Final

BASE: Final = 1
INFINIBAND: Final = 2  # gives pods their address on the node's InfiniBand fabric
AMD_GRANT: Final = 3  # grants pods AMD GPUs

LATEST: Final = AMD_GRANT

# The headers by which an agent says its level and its version with every call.
LEVEL_HEADER: Final = "OpenRelay-Agent-Level"
VERSION_HEADER: Final = "OpenRelay-Agent-Version"
