"""A function is known by one name, wherever and however it is found."""

import subprocess
import sys
import textwrap

import pytest

from flowfn import task

RAN = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


@task
def make(x):
    RAN.append(("make", x))
    return x


# ---------------------------------------------------------------- names

RECURSIVE = {
    "a local task that calls itself": """
        def make():
            @task
            def down(n):
                return n if n == 0 else down(n - 1).result()

            @entrypoint
            def flow(n):
                return down(n).result()

            return flow
    """,
    "two local tasks that call each other": """
        def make():
            @task
            def even(n):
                return 0 if n == 0 else odd(n - 1).result()

            @task
            def odd(n):
                return 0 if n == 0 else even(n - 1).result()

            @entrypoint
            def flow(n):
                return even(n).result()

            return flow
    """,
    "a local task with a local function that calls it": """
        def make():
            @task
            def down(n):
                return n if n == 0 else more(n)

            def more(n):
                return down(n - 1).result()

            @entrypoint
            def flow(n):
                return down(n).result()

            return flow
    """,
}


@pytest.mark.parametrize("name", RECURSIVE)
def test_recursive_closures_are_named_in_no_time(name, tmp_path):
    # given
    script = tmp_path / "script.py"
    script.write_text(
        "from flowfn import entrypoint, task\n" + textwrap.dedent(RECURSIVE[name]) + "\nprint(make().invoke(3))\n"
    )

    # when: in a process of its own, since it may never come back
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=4)

    # then
    assert done.stdout == "0\n", done.stderr


def test_a_script_and_the_module_of_the_same_file_are_one(tmp_path):
    # given
    (tmp_path / "job.py").write_text(
        textwrap.dedent("""
            import sys
            from flowfn import entrypoint, task
            from flowfn.checkpoint.sqlite import SqliteSaver

            @task
            def work(x):
                print("ran", x)
                return x

            @entrypoint(checkpointer=SqliteSaver("flows.db"))
            def flow(x):
                value = work(x).result()
                if "fail" in sys.argv:
                    raise SystemExit(3)
                return value

            if __name__ == "__main__":
                print("got", flow.invoke(5 if "fail" in sys.argv else None, {"thread_id": "t"}))
        """)
    )

    def ran(*command):
        return subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, timeout=20)

    # when
    begun = ran("job.py", "fail")
    gone_on = ran("-c", "import job; print('got', job.flow.invoke(None, {'thread_id': 't'}))")

    # then
    assert (begun.stdout, begun.returncode) == ("ran 5\n", 3), begun.stderr
    assert gone_on.stdout == "got 5\n", gone_on.stderr
