"""Which secrets are good, and where they come from."""

from __future__ import annotations

import errno
import os
import pickle
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flowfn.errors import NoKeyError, ShortSecretError, UnreadableError, UnstorableError
from flowfn.serde import Keyring, Serializer, default_keyring, key_file
from flowfn.serde.keys import Key

NEW, OLD = "a-new-secret-of-32-characters-xx", "an-old-secret-of-32-characters-x"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory of the test's own, without a key."""
    monkeypatch.delenv("FLOWFN_KEY", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def keep(secret: str | bytes, mode: int = 0o600) -> Path:
    path = key_file()
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(secret if isinstance(secret, bytes) else secret.encode())
    path.chmod(mode)
    return path


# ---------------------------------------------------------------- keyrings


def test_equal_secrets_make_equal_keys() -> None:
    assert Key.of(NEW).id == Key.of(NEW.encode()).id == Keyring.of(f" {NEW}\n").first.id
    assert Key.of(NEW).signing == Key.of(NEW).signing


def test_other_secrets_make_other_keys() -> None:
    assert Key.of(NEW).id != Key.of(OLD).id
    assert Key.of(NEW).signing != Key.of(OLD).signing


def test_what_is_derived_for_one_purpose_is_no_use_for_another() -> None:
    key = Key.of(NEW)

    assert len({key.derived(b"a"), key.derived(b"b"), key.signing, key.derived(b"flowfn key id")}) == 4


def test_the_first_key_signs_and_all_are_found() -> None:
    ring = Keyring.of(NEW, OLD)

    assert ring.first.id == Key.of(NEW).id
    assert [ring.get(id) is not None for id in (*ring.ids, b"none")] == [True, True, False]


@pytest.mark.parametrize("secret", ["", "123456789012345", " 123456789012345 ", b"123456789012345"])
def test_a_short_secret_is_refused(secret: str | bytes) -> None:
    with pytest.raises(ShortSecretError, match="at least 16"):
        Keyring.of(NEW, secret)


def test_a_secret_is_never_shown() -> None:
    for ring in (Keyring.of(NEW, OLD), default_keyring()):
        assert NEW not in repr(ring) + repr(ring.first) + repr(vars(ring))


def test_a_secret_is_never_stored() -> None:
    with pytest.raises(UnstorableError, match="a key is not stored or sent"):
        Serializer().dumps({"ring": Keyring.of(NEW)})


def test_the_keyring_of_the_environment_travels_without_its_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOWFN_KEY", NEW)
    assert default_keyring().first.id == Key.of(NEW).id

    data = pickle.dumps(default_keyring())

    assert pickle.loads(data) is default_keyring()
    assert len(data) < 100


# ---------------------------------------------------------------- FLOWFN_KEY


@pytest.mark.parametrize("between", [",", " ", "\n", ", ", "\t,\r\n"])
def test_the_variable_may_hold_several_secrets_of_which_the_first_signs(
    between: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOWFN_KEY", f" {NEW}{between}{OLD}\n")

    assert default_keyring().ids == Keyring.of(NEW, OLD).ids


def test_a_change_of_the_variable_counts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for secret in (OLD, NEW, f"{NEW},{OLD}"):
        monkeypatch.setenv("FLOWFN_KEY", secret)
        assert default_keyring().ids == Keyring.of(*secret.split(",")).ids
    monkeypatch.delenv("FLOWFN_KEY")
    assert default_keyring().ids == ()


def test_with_the_variable_no_file_is_made_or_read(monkeypatch: pytest.MonkeyPatch) -> None:
    path = keep("odd", mode=0o644)
    monkeypatch.setenv("FLOWFN_KEY", NEW)

    assert default_keyring().first.id == Key.of(NEW).id
    assert path.read_text() == "odd"


@pytest.mark.parametrize(
    ("text", "said"),
    [(" , ", "`FLOWFN_KEY` holds no secret"), (f"{NEW} short", "holds a secret of 5 characters")],
)
def test_a_variable_that_holds_something_else_is_refused(text: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOWFN_KEY", text)

    with pytest.raises(NoKeyError, match=said) as caught:
        _ = default_keyring().first
    assert "short" not in str(caught.value)


def test_an_empty_variable_counts_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOWFN_KEY", "")
    keep(OLD)

    assert default_keyring().first.id == Key.of(OLD).id


# ---------------------------------------------------------------- the key file


def test_nothing_is_made_before_something_is_signed(state: Path) -> None:
    serde = Serializer(keys=default_keyring())

    serde.loads(serde.dumps({"plain": [1, ValueError("builtin")]}))
    assert not serde.has_key(b"none")

    assert list(state.iterdir()) == []


def test_the_first_signature_makes_a_key_that_stays(state: Path) -> None:
    first = default_keyring().first

    assert [path.name for path in (state / "flowfn").iterdir()] == ["key"]
    assert Keyring.of(key_file().read_text()).ids == default_keyring().ids == (first.id,)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no modes")
def test_the_key_is_for_the_user_alone(state: Path) -> None:
    old = os.umask(0)
    try:
        _ = default_keyring().first
    finally:
        os.umask(old)

    assert stat.S_IMODE((state / "flowfn").stat().st_mode) == 0o700
    assert stat.S_IMODE(key_file().stat().st_mode) == 0o600


def test_a_file_may_hold_several_secrets_of_which_the_first_signs() -> None:
    keep(f"{NEW}\n{OLD}\n")

    assert default_keyring().ids == Keyring.of(NEW, OLD).ids


def test_what_the_file_holds_can_be_the_variable_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    here = default_keyring().first.id

    monkeypatch.setenv("FLOWFN_KEY", key_file().read_text())

    assert default_keyring().first.id == here


def test_a_key_that_was_added_to_the_file_is_found_when_it_is_missed() -> None:
    old = default_keyring().first.id
    path = key_file()

    keep(f"{NEW}\n{path.read_text()}")

    assert default_keyring().get(Key.of(NEW).id) is not None
    assert default_keyring().ids == (Key.of(NEW).id, old)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o777])
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no modes")
def test_a_key_that_others_can_read_is_refused(mode: int) -> None:
    path = keep(NEW, mode)

    with pytest.raises(NoKeyError, match=rf"mode {mode:o}\).*`chmod 600 {path}`.*FLOWFN_KEY"):
        _ = default_keyring().first


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root can give files away")
def test_a_key_of_another_user_is_refused() -> None:
    os.chown(keep(NEW), 12345, -1)

    with pytest.raises(NoKeyError, match="belongs to another user"):
        _ = default_keyring().first


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "holds no secret"),
        (b" \n,\n", "holds no secret"),
        (b"correct horse battery staple", "a secret of 7 characters"),
        (NEW.encode() + b"\nshort\n", "a secret of 5 characters"),
        (b"\xff" * 32, "something else than secrets"),
        (b"\0" * 32, "something else than secrets"),
        (NEW.encode("utf-16"), "something else than secrets"),
    ],
)
def test_a_file_that_holds_something_else_is_refused_and_kept(content: bytes, said: str) -> None:
    path = keep(content)

    with pytest.raises(NoKeyError, match=said) as caught:
        _ = default_keyring().first

    assert str(path) in str(caught.value)
    assert path.read_bytes() == content


def test_a_folder_in_the_place_of_the_key_is_refused() -> None:
    key_file().mkdir(parents=True)

    with pytest.raises(NoKeyError, match="cannot be read: Is a directory"):
        _ = default_keyring().first


def test_a_link_to_nowhere_in_the_place_of_the_key_is_refused() -> None:
    key_file().parent.mkdir()
    key_file().symlink_to("nowhere")

    with pytest.raises(NoKeyError, match="is not there"):
        _ = default_keyring().first


def test_a_file_in_the_place_of_the_folder_is_refused(state: Path) -> None:
    (state / "flowfn").write_text("")

    with pytest.raises(NoKeyError, match=r"Not a directory\. Set `FLOWFN_KEY`"):
        _ = default_keyring().first


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root can write everywhere")
def test_a_folder_that_cannot_be_written_asks_for_the_variable(state: Path) -> None:
    state.chmod(0o500)

    with pytest.raises(NoKeyError, match=r"cannot be made: Permission denied\. Set `FLOWFN_KEY`"):
        _ = default_keyring().first


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a place where not even root can write")
def test_a_place_where_nobody_can_write_asks_for_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/self/task")

    with pytest.raises(NoKeyError, match=r"the key file `/proc/self/task/flowfn/key` cannot be made.*FLOWFN_KEY"):
        _ = default_keyring().first


def test_a_full_disk_asks_for_the_variable_and_leaves_nothing(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(NoKeyError, match=r"No space left on device\. Set `FLOWFN_KEY`"):
        _ = default_keyring().first

    assert list((state / "flowfn").iterdir()) == []


def test_a_file_system_without_links_gets_its_key_too(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)

    made = default_keyring().first.id

    assert Keyring.of(key_file().read_text()).first.id == made
    assert [path.name for path in (state / "flowfn").iterdir()] == ["key"]


def test_a_key_that_a_rival_made_meanwhile_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def late(draft: Path, path: Path) -> None:
        keep(OLD)
        link(draft, path)

    monkeypatch.setattr(os, "link", late)

    assert default_keyring().first.id == Key.of(OLD).id


def test_without_a_home_the_variable_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # As it does for a user without a home.

    with pytest.raises(NoKeyError, match=r"no home directory.*FLOWFN_KEY"):
        _ = default_keyring().first
    assert default_keyring().ids == ()


@pytest.mark.parametrize(
    ("platform", "variables", "folder"),
    [
        ("linux", {"HOME": "/home/ada"}, "/home/ada/.local/state/flowfn"),
        ("linux", {"HOME": "/home/ada", "XDG_STATE_HOME": "/state"}, "/state/flowfn"),
        ("linux", {"HOME": "/home/ada", "XDG_STATE_HOME": "state"}, "/home/ada/.local/state/flowfn"),
        ("darwin", {"HOME": "/Users/ada"}, "/Users/ada/Library/Application Support/flowfn"),
        ("win32", {"LOCALAPPDATA": "/users/ada/local"}, "/users/ada/local/flowfn"),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="paths are written as elsewhere")
def test_the_file_is_where_the_system_keeps_state(
    platform: str, variables: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(sys, "platform", platform)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert key_file() == Path(folder, "key")


def test_an_error_says_which_value_needed_the_key(state: Path) -> None:
    (state / "flowfn").write_text("")
    serde = Serializer(keys=default_keyring())

    with pytest.raises(NoKeyError, match=r"^The result of task `charge` needs a key") as caught:
        serde.dumps(lambda: 1, "The result of task `charge`")

    assert isinstance(caught.value, UnstorableError)
    assert isinstance(caught.value, UnreadableError)


# ---------------------------------------------------------------- processes

SIGN = """
import os, sys, time
from flowfn.serde import Keyring, Serializer, default_keyring, key_id_of
print("ready", flush=True)
while not os.path.exists(sys.argv[1]):
    pass
print(key_id_of(Serializer(keys=default_keyring()).dumps(len)).hex())
"""


def test_processes_that_sign_first_at_the_same_instant_agree_on_one_key(state: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    processes = [
        subprocess.Popen([sys.executable, "-c", SIGN, str(go)], stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"

    go.touch()
    ids = {process.communicate()[0].strip() for process in processes}

    assert ids == {default_keyring().first.id.hex()}
    assert [path.name for path in (state / "flowfn").iterdir()] == ["key"]


FORK = """
import os
from flowfn.serde import Serializer, default_keyring
serde = Serializer(keys=default_keyring())
before = serde.dumps(len)
reader, writer = os.pipe()
if os.fork() == 0:
    assert serde.loads(before) is len
    os.write(writer, serde.dumps(max))
    os._exit(0)
assert serde.loads(os.read(reader, 1000)) is max
print("agreed")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_has_the_key_of_its_parent() -> None:
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ("agreed\n", "")


def test_importing_flowfn_reads_and_makes_no_key(state: Path) -> None:
    keep("odd", 0o644)

    done = subprocess.run([sys.executable, "-c", "import flowfn"], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert key_file().read_text() == "odd"
