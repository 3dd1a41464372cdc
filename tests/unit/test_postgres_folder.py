"""Where the embedded Postgres lives: in the folder that it is given, unless pg_ctl cannot take the path."""

from __future__ import annotations

from pathlib import Path

from local.postgres import usable_folder


def test_a_path_without_spaces_is_taken_as_it_is(tmp_path: Path) -> None:
    assert usable_folder(tmp_path / "pg") == tmp_path / "pg"


def test_a_path_with_a_space_gets_a_lasting_folder_of_its_own(tmp_path: Path) -> None:
    first, second = usable_folder(tmp_path / "my code" / "pg"), usable_folder(tmp_path / "my other code" / "pg")
    assert " " not in f"{first}{second}"
    assert first != second
    assert first == usable_folder(tmp_path / "my code" / "pg")
