"""Fields that take an identity in any known spelling and hand on its canonical form."""

from collections.abc import Callable
from typing import Any

from openrelay.api.serializers import StrictCharField
from openrelay.core import canonical


class _CanonicalField(StrictCharField):
    """A string with one canonical form. Another spelling means the same thing; anything else is refused."""

    canonize: Callable[[str], str | None]
    form: str

    default_error_messages = {"form": "{value} is not {form}"}

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        found = type(self).canonize(text)
        if found is None:
            self.fail("form", value=ascii(text[:60]), form=self.form)
        return found


class PciAddressField(_CanonicalField):
    """A PCI address, such as 0000:05:00.0."""

    canonize = staticmethod(canonical.pci_address)
    form = canonical.PCI_ADDRESS_FORM

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"max_length": 32, **kwargs})


class HostNameField(_CanonicalField):
    """A host name, such as gpu-07.example.net."""

    canonize = staticmethod(canonical.host_name)
    form = canonical.HOST_NAME_FORM

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"max_length": 254, **kwargs})


class SlugField(_CanonicalField):
    """The short name of an organization, a location or a GPU model."""

    canonize = staticmethod(canonical.slug)
    form = canonical.SLUG_FORM

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"max_length": 64, **kwargs})
