"""The faults still fit the code that they were made for."""

import pytest
from django.conf import settings

from tests.mutants.seeded import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_what_a_planted_fault_replaces_is_there_once(mutant: Mutant) -> None:
    for path, text, instead in mutant.edits:
        assert (settings.BASE_DIR / path).read_text().count(text) == 1, f"{path}: {text}"
        assert text != instead
