"""Questions that functional flows ask, and the answers: equal on both libraries, but where flowfn is stricter."""

import asyncio

import pytest

awaited = pytest.mark.parametrize("way", ["awaited"], indirect=True)


def questions(found):
    return [question.value for question in found["__interrupt__"]]


def test_a_question_in_the_body(same):
    def program(kit):
        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            return [n, kit.interrupt({"n": n})]

        return [kit.invoke(flow, 1), kit.invoke(flow, kit.Command(resume="yes"))]

    assert same(program)[1] == [1, "yes"]


def test_a_question_in_a_task(same):
    def program(kit):
        runs = []

        @kit.task
        def ask(n):
            runs.append("ask")
            return kit.interrupt({"n": n})

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            runs.append("flow")
            return ask(n).result()

        return [kit.invoke(flow, 1), kit.invoke(flow, kit.Command(resume="yes")), runs]

    assert same(program)[1:] == ["yes", ["flow", "ask", "flow", "ask"]]


def test_a_question_in_a_nested_task_comes_out_once(same):
    def program(kit):
        @kit.task
        def ask(n):
            return kit.interrupt({"n": n})

        @kit.task
        def outer(n):
            return ask(n).result()

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            return outer(n).result()

        return [kit.invoke(flow, 1), kit.invoke(flow, kit.Command(resume="yes"))]

    assert len(same(program)[0]["__interrupt__"]) == 1


def test_finished_tasks_do_not_run_again_when_resumed(same):
    def program(kit):
        runs = []

        @kit.task
        def step(n):
            runs.append(n)
            return n * 2

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            a = step(n).result()
            answer = kit.interrupt(a)
            return [a, answer, step(n + 1).result()]

        return [kit.invoke(flow, 1), kit.invoke(flow, kit.Command(resume="yes")), runs]

    assert same(program)[1:] == [[2, "yes", 4], [1, 2]]


def test_questions_one_after_another(same):
    def program(kit):
        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            return [kit.interrupt("first"), kit.interrupt("second"), kit.interrupt("third")]

        return [
            questions(kit.invoke(flow, 1)),
            questions(kit.invoke(flow, kit.Command(resume="a"))),
            questions(kit.invoke(flow, kit.Command(resume="b"))),
            kit.invoke(flow, kit.Command(resume="c")),
        ]

    assert same(program) == [["first"], ["second"], ["third"], ["a", "b", "c"]]


def test_equal_questions_one_after_another(same):
    def program(kit):
        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            return [kit.interrupt("again?") for _ in range(3)]

        found = [kit.invoke(flow, 1)]
        for answer in ("a", "b", "c"):
            found.append(kit.invoke(flow, kit.Command(resume=answer)))
        return found

    assert same(program)[3] == ["a", "b", "c"]


def test_questions_in_a_loop_until_an_answer_fits(same):
    def program(kit):
        @kit.task
        def ask(question):
            while True:
                answer = kit.interrupt(question)
                if isinstance(answer, int):
                    return answer
                question = f"{answer!r} is no number"

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            return ask("how many?").result()

        return [
            questions(kit.invoke(flow, 1)),
            questions(kit.invoke(flow, kit.Command(resume="many"))),
            questions(kit.invoke(flow, kit.Command(resume="more"))),
            kit.invoke(flow, kit.Command(resume=3)),
        ]

    assert same(program) == [["how many?"], ["'many' is no number"], ["'more' is no number"], 3]


def test_questions_in_tasks_one_after_another(same):
    def program(kit):
        runs = []

        @kit.task
        def ask(n):
            answer = kit.interrupt(n)
            runs.append(n)
            return answer

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            return [ask(i).result() for i in range(n)]

        found = [kit.invoke(flow, 3)]
        for answer in ("a", "b", "c"):
            found.append(kit.invoke(flow, kit.Command(resume=answer)))
        return [found, runs]

    assert same(program)[1] == [0, 1, 2]


@pytest.mark.parametrize("answer", [0, False, "", [], {"a": 1}, [1, 2], "text", 1.5])
def test_any_value_but_none_answers(same, answer):
    def program(kit):
        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            return ["answered", kit.interrupt("?")]

        kit.invoke(flow, 1)
        return kit.attempt(flow, kit.Command(resume=answer))

    assert same(program) == ["answered", answer]


def test_an_empty_dict_asks_again_in_langgraph_and_answers_in_flowfn(both):
    """On purpose: anything that is no map from ids is the answer itself, `{}` too."""

    def program(kit):
        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            return ["answered", kit.interrupt("?")]

        kit.invoke(flow, 1)
        return kit.attempt(flow, kit.Command(resume={}))

    pair = both(program)
    assert list(pair.theirs) == ["__interrupt__"]
    assert pair.ours == ["answered", {}]


def test_none_is_no_answer_in_langgraph_and_one_in_flowfn(both):
    """On purpose: `None` answers."""

    def program(kit):
        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            return ["answered", kit.interrupt("?")]

        kit.invoke(flow, 1)
        try:
            return kit.attempt(flow, kit.Command(resume=None))
        except BaseException:
            return "refused"

    pair = both(program)
    assert pair.theirs != ["answered", None]
    assert pair.ours == ["answered", None]


def test_an_answer_by_id(same):
    def program(kit):
        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            return [kit.interrupt("?"), kit.interrupt("sure?")]

        found = kit.invoke(flow, 1)
        for answer in ("a", "b"):
            found = kit.invoke(flow, kit.Command(resume={found["__interrupt__"][0].id: answer}))
        return found

    assert same(program) == ["a", "b"]


def test_answers_by_id_to_parallel_questions(same):
    def program(kit):
        @kit.task
        def ask(n):
            return kit.interrupt(n)

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            return [f.result() for f in [ask("a"), ask("b")]]

        found, answers = kit.invoke(flow, 1), {}
        for _ in range(2):
            if "__interrupt__" not in found:
                break
            answers = {question.id: f"{question.value}!" for question in found["__interrupt__"]}
            found = kit.invoke(flow, kit.Command(resume=answers))
        return found

    assert same(program) == ["a!", "b!"]


def test_parallel_questions_come_one_by_one_in_langgraph_and_all_at_once_in_flowfn(both):
    """On purpose: all open questions of parallel tasks come out together."""

    def program(kit):
        @kit.task
        def ask(n):
            return kit.interrupt(n)

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            return [f.result() for f in [ask("a"), ask("b"), ask("c")]]

        found = kit.invoke(flow, 1)
        return [questions(found), [q.value for q in kit.state(flow).interrupts]]

    pair = both(program)
    assert pair.theirs == [["a"], ["a"]]
    assert [sorted(each) for each in pair.ours] == [["a", "b", "c"], ["a", "b", "c"]]


def test_one_bare_answer_to_several_questions_is_a_runtime_error(same):
    def program(kit):
        @kit.task
        def ask(n):
            return kit.interrupt(n)

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            return [f.result() for f in [ask("a"), ask("b")]]

        kit.invoke(flow, 1)
        with pytest.raises(RuntimeError):
            kit.invoke(flow, kit.Command(resume="yes"))

    same(program)


def test_a_question_without_a_saver_is_shown_by_langgraph_and_an_error_in_flowfn(both):
    """On purpose: without a saver nothing could go on."""

    def program(kit):
        @kit.entrypoint()
        def flow(n):
            return kit.interrupt("?")

        return kit.attempt(flow, 1)

    pair = both(program)
    assert list(pair.theirs) == ["__interrupt__"]
    assert pair.ours == ("raised", {"error": "NoSaverError"})


def test_a_question_is_swallowed_by_except_exception_in_langgraph_only(both):
    """On purpose: a stop is a BaseException, which no `except Exception` swallows."""

    def program(kit):
        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            try:
                return kit.interrupt("?")
            except Exception:
                return "unapproved"

        return kit.invoke(flow, 1)

    pair = both(program)
    assert pair.theirs == "unapproved"
    assert list(pair.ours) == ["__interrupt__"]


def test_answering_a_finished_thread_gives_its_value_in_langgraph_and_an_error_in_flowfn(both):
    """On purpose: nothing waits."""

    def program(kit):
        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            return kit.interrupt("?")

        kit.invoke(flow, 1)
        kit.invoke(flow, kit.Command(resume="a"))
        return kit.attempt(flow, kit.Command(resume="b"))

    pair = both(program)
    assert pair.theirs == "a"
    assert pair.ours == ("raised", {"error": "NothingToResumeError"})


def test_answering_a_new_thread_runs_it_in_langgraph_and_is_an_error_in_flowfn(both):
    """On purpose: nothing waits (LangGraph starts the flow with the command as its input)."""

    def program(kit):
        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            return type(n).__name__

        return kit.attempt(flow, kit.Command(resume="b"))

    pair = both(program)
    assert pair.theirs == "Command"
    assert pair.ours == ("raised", {"error": "NothingToResumeError"})


def test_an_old_answer_answers_the_next_question_in_langgraph_only(both):
    """On purpose: an answer is used once, for the question that was shown."""

    def program(kit):
        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            return [kit.interrupt("first"), kit.interrupt("second")]

        kit.invoke(flow, 1)
        kit.invoke(flow, kit.Command(resume="yes"))
        return kit.invoke(flow, None)

    pair = both(program)
    assert pair.theirs == ["yes", "yes"]
    assert pair.ours["__interrupt__"][0]["Interrupt"] == "second"


def test_no_input_asks_the_same_again(same):
    def program(kit):
        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            return kit.interrupt("?")

        first = kit.invoke(flow, 1)
        again = kit.invoke(flow, None)
        return [first, again, first["__interrupt__"][0].id == again["__interrupt__"][0].id]

    assert same(program)[2] is True


def test_new_input_leaves_the_question(same):
    def program(kit):
        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n, *, previous=None):
            return [n, previous, kit.interrupt(n)]

        kit.invoke(flow, 1)
        second = kit.invoke(flow, 2)
        return [second, kit.state(flow), kit.invoke(flow, kit.Command(resume="yes"))]

    assert same(program)[2] == [2, None, "yes"]


def test_previous_is_seen_again_when_resumed(same):
    def program(kit):
        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n, *, previous=None):
            return [n, previous, kit.interrupt(n)]

        found = []
        for n in (1, 2):
            kit.invoke(flow, n)
            found.append(kit.invoke(flow, kit.Command(resume=f"yes {n}")))
        return found

    same(program)


def test_a_failure_after_an_answer_keeps_the_answer(same):
    def program(kit):
        fail = [True]

        @kit.task
        def flaky(n):
            if fail:
                fail.clear()
                raise ConnectionError("down")
            return n

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            answer = kit.interrupt("?")
            return [answer, flaky(n).result()]

        kit.invoke(flow, 1)
        return [kit.attempt(flow, kit.Command(resume="yes")), kit.invoke(flow, None)]

    assert same(program)[1] == ["yes", 1]


def test_a_question_after_a_caught_failure(same):
    def program(kit):
        @kit.task
        def fail(n):
            raise LookupError(n)

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            try:
                fail(n).result()
            except LookupError as error:
                return [str(error), kit.interrupt("go on?")]

        return [kit.invoke(flow, 1), kit.invoke(flow, kit.Command(resume="yes"))]

    assert same(program)[1] == ["1", "yes"]


def test_a_response_schema_is_shown(same):
    def program(kit):
        schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}}

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            return kit.interrupt("?", response_schema=schema)

        return [kit.invoke(flow, 1), kit.invoke(flow, kit.Command(resume={"ok": True}))]

    assert same(program)[1] == {"ok": True}


def test_the_tuple_that_a_task_returned_becomes_a_list_in_langgraph_and_stays_one_in_flowfn(both):
    """On purpose: types are kept."""

    def program(kit):
        @kit.task
        def pair(n):
            return (n, {n})

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            found = pair(n).result()
            kit.interrupt("?")
            return [type(found).__name__, type(found[1]).__name__]

        kit.invoke(flow, 1)
        return kit.invoke(flow, kit.Command(resume="yes"))

    pair = both(program)
    assert pair.theirs == ["list", "set"]
    assert pair.ours == ["tuple", "set"]


@awaited
def test_questions_in_async_flows_and_tasks(same):
    def program(kit):
        @kit.task
        async def ask(n):
            await asyncio.sleep(0)
            return kit.interrupt(n)

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        async def flow(n):
            return [await ask(n), kit.interrupt("inline"), await ask(n + 1)]

        found = [kit.invoke(flow, 1)]
        for answer in ("a", "b", "c"):
            found.append(kit.invoke(flow, kit.Command(resume=answer)))
        return found

    assert same(program)[3] == ["a", "b", "c"]


def test_a_question_in_a_nested_flow(same):
    def program(kit):
        runs = []

        @kit.task
        def step(n):
            runs.append(n)
            return n * 2

        @kit.entrypoint()
        def child(n):
            return [step(n).result(), kit.interrupt("child?")]

        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def parent(n):
            return [step(n + 10).result(), child.invoke(n), kit.interrupt("parent?")]

        return [
            kit.invoke(parent, 1),
            kit.state(parent).interrupts,
            kit.invoke(parent, kit.Command(resume="a")),
            kit.invoke(parent, kit.Command(resume="b")),
            runs,
        ]

    assert same(program)[3:] == [[22, [2, "a"], "b"], [11, 1]]


def test_an_old_question_asked_again_from_its_checkpoint(same):
    def program(kit):
        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            return kit.interrupt("?")

        kit.invoke(flow, 1)
        kit.invoke(flow, kit.Command(resume="first"))
        old = kit.history(flow)[-1]
        again = kit.invoke(flow, None, old.config)
        return [again, kit.history(flow)]

    same(program)


def test_another_answer_at_an_old_checkpoint_is_ignored_by_langgraph_and_forks_in_flowfn(both):
    """On purpose: an answer at a checkpoint that is not the newest forks there."""

    def program(kit):
        @kit.entrypoint(checkpointer=kit.InMemorySaver())
        def flow(n):
            return kit.interrupt("?")

        kit.invoke(flow, 1)
        kit.invoke(flow, kit.Command(resume="first"))
        old = kit.history(flow)[-1]
        return kit.invoke(flow, kit.Command(resume="second"), old.config)

    pair = both(program)
    assert pair.theirs == "first"
    assert pair.ours == "second"
