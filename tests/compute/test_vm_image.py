"""What a VM may start from by `imageUrl`: checked for form before it is stored or handed to a node."""

import pytest

from compute.models import Workload
from tests.compute.conftest import World, refused

pytestmark = pytest.mark.django_db

SMALL = {"gpuCount": None, "resourceSize": "cpu-small"}


@pytest.mark.parametrize(
    "image",
    [
        "https://images.example.com/ubuntu-24.04.qcow2",
        "HTTPS://Images.Example.com:8443/a/b.img?X-Sig=a%2Fb&e=1",
        "https://10.0.0.7/a.img",
        "https://[2001:db8::7]:443/a.img",
        "ghcr.io/acme/server:1.4",
        "ubuntu",
    ],
)
def test_an_image_by_address_or_reference_reaches_the_node(world: World, image: str) -> None:
    made = world.vm(world.buyer, imageUrl=image)
    assert world.work()[str(made.pk)]["spec"]["imageUrl"] == image
    bare = world.vm(world.buyer, imageUrl=image, **SMALL)
    assert world.work()[str(bare.pk)]["spec"]["imageUrl"] == image


@pytest.mark.parametrize(
    ("image", "why"),
    [
        ("../..", "registry"),
        ("/etc/passwd", "lower-case"),
        ("a b", "lower-case"),
        ("http://example.com/a.img", "https://"),
        ("file:///etc/passwd", "https://"),
        ("https://", "host"),
        ("https:///a.img", "host"),
        ("https://example.com", "no image"),
        ("https://example.com/", "no image"),
        ("https://exa mple.com/a.img", "percent-encoded"),
        ("https://example.com/a.img\n", "percent-encoded"),
        ("https://example.com/%zz", "percent-encoded"),
        ("https://ex\\ample.com/a.img", "percent-encoded"),
        ("https://me:secret@example.com/a.img", "password"),
        ("https://-example.com/a.img", "host"),
        ("https://example.com:99999/a.img", "port"),
        ("https://example.com:port/a.img", "port"),
        ("https://[::1/a.img", "host"),
        ("https://example.com/../../a.img", ".."),
        ("https://example.com/a/%2E%2e/b.img", ".."),
        ("https://example.com/a.img#top", "#"),
    ],
)
def test_anything_else_is_refused_by_name(world: World, image: str, why: str) -> None:
    for body in ({}, SMALL):
        refused(world.ask(world.buyer, imageUrl=image, **body), 400, "VALIDATION_ERROR", "imageUrl", why)
    assert not Workload.objects.exists()
