"""Where flowfn shows less than LangGraph, or shows it otherwise: reason → the tests that fail for it."""

KNOWN = {
    "a question in a task ends the task in `tasks`, too; LangGraph shows the end of the flow alone": [
        "test_a_question_inside_a_task_ends_task_and_flow_with_it",
    ],
    "a node that a finished sibling's pending writes will make due is no task of the failed super-step yet": [
        "test_the_state_of_a_failed_step_shows_what_is_left",
        "test_the_record_of_a_failed_step",
    ],
    "`PregelTask.result` of a function is told only by a history that holds the run's end": [
        "test_a_state_is_addressed_by_its_checkpoint",
        "test_the_history_of_a_thread_with_answered_questions",
        "test_the_history_can_be_filtered",
        "test_the_history_can_begin_before_a_checkpoint",
        "test_a_failed_step_of_one_node_goes_on",
    ],
    "a nested flow's namespace names what was called with what, so that a replay finds it after an edit": [
        "test_the_namespace_of_a_nested_flow_names_the_task_that_called_it",
        "test_nested_flows_are_invisible_without_subgraphs[checkpoints]",
        "test_nested_flows_are_invisible_without_subgraphs[debug]",
        "test_nested_flows_stream_alike_with_subgraphs[v1-tasks]",
        "test_nested_flows_stream_alike_with_subgraphs[v1-checkpoints]",
        "test_nested_flows_stream_alike_with_subgraphs[v1-debug]",
        "test_nested_flows_stream_alike_with_subgraphs[v2-tasks]",
        "test_nested_flows_stream_alike_with_subgraphs[v2-checkpoints]",
        "test_nested_flows_stream_alike_with_subgraphs[v2-debug]",
        "test_a_second_nested_flow_in_one_body_streams_alike",
    ],
    "an update has no task result in the history": [
        "test_bulk_updates",
    ],
}
