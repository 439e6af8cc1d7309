"""Reading and writing a profile; an old fit is made anew, a fresh one is taken as it is (without scipy)."""

from __future__ import annotations

from pathlib import Path

from simcore.errors import InputError
from simcore.files import parse, read_json, write_whole
from simcore.profile.fitted import FIT_VERSION
from simcore.profile.schema import PROFILE_VERSION, Profile


def load_profile(path: Path | str) -> Profile:
    """The profile in ``path``, with a fit of the current version.

    Raises ``InputError`` where it is no profile, is of another version, or does not hold what it must.
    """
    data = read_json(Path(path))
    if data.get("format") != "simscale-profile":
        raise InputError(f"{path}: format: found {data.get('format')!r}; a profile says 'simscale-profile'; "
                         "write one with: simscale calibrate -o profile.json")  # fmt: skip
    if data.get("version") != PROFILE_VERSION:
        raise InputError(f"{path}: version: found {data.get('version')!r}; this simscale reads version "
                         f"{PROFILE_VERSION}; calibrate again")  # fmt: skip
    profile = parse(Profile, data, path, from_json=True)
    if profile.fit.version != FIT_VERSION:
        from simcore.profile.fit import fit_samples

        profile = profile.model_copy(update={"fit": fit_samples(profile.samples)})
    return profile


def save_profile(profile: Profile, path: Path | str) -> None:
    """Write ``profile`` to ``path``, whole or not at all."""
    write_whole(Path(path), profile.model_dump_json(indent=1) + "\n")
