"""Where flowfn shows less than LangGraph, or shows it otherwise: reason → the tests that fail for it."""

KNOWN = {
    "a question in a task ends the task in `tasks`, too; LangGraph shows the end of the flow alone": [
        "test_a_question_inside_a_task_ends_task_and_flow_with_it",
    ],
    "a node that a finished sibling's pending writes will make due is no task of the failed super-step yet": [
        "test_the_state_of_a_failed_step_shows_what_is_left",
        "test_the_record_of_a_failed_step",
    ],
    "the newest checkpoint, addressed by its id, is the thread as it is now: the run goes on and forks nothing": [
        "test_a_run_goes_on_from_any_checkpoint[0]",
        "test_a_replay_streams_alike[checkpoints-0]",
        "test_a_replay_streams_alike[debug-0]",
        "test_a_half_failed_step_can_be_replayed_from_its_checkpoint",
        "test_a_run_from_a_checkpoint_of_a_child_is_one_of_its_parent[False-__start__]",
        "test_a_run_from_a_checkpoint_of_a_child_is_one_of_its_parent[False-one]",
        "test_a_run_from_a_checkpoint_of_a_child_is_one_of_its_parent[False-ask]",
    ],
    "a graph that remembers goes on from what it remembers last, also when the one around it goes back": [
        "test_a_run_from_a_checkpoint_of_a_remembering_child_goes_on_there[one]",
        "test_a_run_from_a_checkpoint_of_a_remembering_child_goes_on_there[ask]",
    ],
    "what a command writes at an old checkpoint comes after the fork, not with it": [
        "test_a_command_at_an_old_checkpoint_sends_on_beside_what_is_due",
    ],
    "a node that a command sends to asks anew, beside what it had asked, until the run ends": [
        "test_a_command_is_the_input_of_a_thread_with_a_question[goto-list]",
    ],
    "a node that wrote only what is not stored has finished all the same": [
        "test_two_nodes_at_once_write_to_an_annotated_channel[untracked-unguarded]",
    ],
    "a graph that remembers is addressed by the namespace that holds its state, without the task's id": [
        "test_a_node_that_is_a_graph_remembers_only_with_true[True]",
    ],
    "an answer belongs to its question: an update of the thread, or of a graph in it, takes the question away": [
        "test_an_update_of_a_childs_state_is_seen_when_it_goes_on",
        "test_an_update_of_a_childs_state_may_answer_for_its_node",
        "test_an_answer_to_an_updated_thread",
    ],
    "what is no node is no target": [
        "test_a_send_to_no_node[unknown]",
        "test_a_send_to_no_node[__start__]",
        "test_a_send_to_no_node[__end__]",
        "test_a_node_returns_a_command[unknown-edge]",
        "test_a_node_returns_a_command[unknown-no-edge]",
        "test_a_node_returns_a_command[start-edge]",
        "test_a_node_returns_a_command[start-no-edge]",
        "test_a_command_is_the_input_of_a_finished_thread[goto-unknown]",
        "test_a_command_is_the_input_of_a_thread_with_a_question[goto-unknown]",
        "test_a_command_for_the_parent[unknown-node-node]",
        "test_a_command_for_the_parent[unknown-node-called]",
    ],
    "the update of a command that begins a thread is made once, by the start": [
        "test_a_command_is_the_first_input_of_a_thread[update]",
        "test_a_command_is_the_first_input_of_a_thread[goto-and-update]",
    ],
    "an error that a handler raises is its own, also the one it was given": [
        "test_a_handler_takes_the_place_of_a_failed_node[raise_same]",
    ],
    "in which order schemas are added does not matter": [
        "test_two_channels_for_one_key_are_refused",
    ],
    "a partial is called as its function is": [
        "test_what_has_no_name_of_its_own_is_named_or_refused[partial]",
    ],
    "a super-step is told before it is known whether the next nodes can read the state": [
        "test_an_update_that_a_key_cannot_take_fails_the_run[none-for-a-key-Model]",
    ],
    "a node that is known to have finished does not claim to have started again": [
        "test_a_finished_sibling_does_not_run_again",
        "test_a_half_failed_step_is_gone_on_with_alike[tasks]",
    ],
    "a piece of a message that is written to the state is a whole message": [
        "test_chunks_that_a_node_returns_are_messages",
    ],
    "`PregelTask.result` of a function is told only by a history that holds the run's end": [
        "test_a_state_is_addressed_by_its_checkpoint",
        "test_the_history_of_a_thread_with_answered_questions",
        "test_the_history_can_be_filtered",
        "test_the_history_can_begin_before_a_checkpoint",
    ],
}
