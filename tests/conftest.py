"""Every test signs with a key of its own session, never with the user's."""

import os
import tempfile

pytest_plugins = ["flowfn.testing"]

os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="flowfn-tests-")
for _name in [name for name in os.environ if name.startswith("FLOWFN_")]:
    if _name not in ("FLOWFN_FUZZ", "FLOWFN_ROUNDS", "FLOWFN_GRAPHS_COUNT", "FLOWFN_GRAPHS_SEED"):
        del os.environ[_name]
