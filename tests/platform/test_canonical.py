"""One canonical form for one thing, whatever its spelling; what is no spelling of it is None."""

import pytest

from openrelay.core import canonical


@pytest.mark.parametrize(
    ("spelling", "address"),
    [
        ("0000:05:00.0", "0000:05:00.0"),
        ("00000000:05:00.0", "0000:05:00.0"),
        ("05:00.0", "0000:05:00.0"),
        ("0000:1F:1A.7", "0000:1f:1a.7"),
        (" 0000:05:00.0\n", "0000:05:00.0"),
        ("10000:01:00.0", "10000:01:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("0000:05:20.0", None),
        ("0000:05:00.8", None),
        ("0000:05:00", None),
        ("0:05:00.0", None),
        ("000000000:05:00.0", None),
        ("0000-05-00.0", None),
        ("٠٠٠٠:05:00.0", None),
    ],
)
def test_a_pci_address_is_one_whatever_tool_printed_it(spelling: str, address: str | None) -> None:
    assert canonical.pci_address(spelling) == address


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("gpu-07", "gpu-07"),
        ("GPU-07.Example.NET.", "gpu-07.example.net"),
        ("gpu_07", "gpu_07"),
        ("gpu 07", None),
        ("gpu..07", None),
        ("-gpu", None),
        ("\N{KELVIN SIGN}ate", None),
        ("a" * 64, None),
        (".".join(["a" * 60] * 5), None),
        (".", None),
    ],
)
def test_a_host_name_has_no_case_and_no_final_dot(spelling: str, name: str | None) -> None:
    assert canonical.host_name(spelling) == name


@pytest.mark.parametrize(
    ("spelling", "slug"),
    [
        ("nvidia-h100-sxm5-80gb", "nvidia-h100-sxm5-80gb"),
        ("NVIDIA-H100-SXM5-80GB ", "nvidia-h100-sxm5-80gb"),
        ("rtx_4090.d", "rtx_4090.d"),
        ("nvidia h100", None),
        ("-h100", None),
        ("", None),
    ],
)
def test_a_slug_has_no_case_and_no_white_space(spelling: str, slug: str | None) -> None:
    assert canonical.slug(spelling) == slug


@pytest.mark.parametrize(
    ("spelling", "network", "words"),
    [
        ("203.0.113.0/24", "203.0.113.0/24", ""),
        ("203.0.113.9", "203.0.113.9/32", ""),
        ("203.0.113.0/255.255.255.0", "203.0.113.0/24", ""),
        ("2001:DB8:0::/32", "2001:db8::/32", ""),
        ("::ffff:203.0.113.0/120", "203.0.113.0/24", ""),
        ("::ffff:cb00:7109", "203.0.113.9/32", ""),
        ("127.0.0.1/24", None, "Write 127.0.0.0/24 for the range, or 127.0.0.1/32 for the address"),
        ("2001:db8::1/32", None, "Write 2001:db8::/32 for the range, or 2001:db8::1/128 for the address"),
        ("fe80::%eth0/64", None, "names a zone"),
        ("everywhere", None, "is not an address range such as 203.0.113.0/24"),
    ],
)
def test_an_address_range_has_no_host_bits_and_no_mapped_form(
    spelling: str, network: str | None, words: str
) -> None:
    found = canonical.network(spelling)
    assert (str(found) if found else None) == network
    assert words in canonical.network_fault(spelling)
    assert bool(canonical.network_fault(spelling)) == (network is None)


@pytest.mark.parametrize(
    ("typed", "sought"),
    [
        ("00000000:05:00.0", "0000:05:00.0"),
        ("{0190E5A0-0000-7000-8000-000000000001}", "0190e5a0-0000-7000-8000-000000000001"),
        ("urn:uuid:0190e5a0-0000-7000-8000-000000000001", "0190e5a0-0000-7000-8000-000000000001"),
        ("0190e5a0000070008000000000000001", "0190e5a0-0000-7000-8000-000000000001"),
        (" Northwind ", "Northwind"),
    ],
)
def test_a_search_finds_an_identity_in_any_spelling(typed: str, sought: str) -> None:
    assert canonical.search_term(typed) == sought
