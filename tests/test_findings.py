"""What SageMaker really does, which raysm once took for something else: a line each, with the tests that hold it.

The numbers are those of the review of the public record (November 2026) that found them. A test that is renamed or goes
away is missed here: what it held would be open again, and nobody would see it.
"""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

FINDINGS = {
    1: (
        "remote debugging is off unless it is asked for",
        "client/test_plan.py::test_nobody_can_look_into_a_job_that_does_not_ask_for_it",
        "sdk/test_twins.py::test_a_job_of_raysm_asks_for_no_look_inside_where_the_sdk_asks_for_none",
    ),
    2: (
        "the log of the SSM agent is no instance's",
        "client/test_logs.py::test_the_log_of_the_agent_of_remote_debugging_is_no_instances_log",
    ),
    3: (
        "scratch lies on the volume that was asked for",
        "bootstrap/test_scratch.py::test_as_on_sagemaker_the_volume_at_tmp_is_taken_and_not_the_small_root",
    ),
    4: (
        "one model, whatever other instances leave under its name",
        "bootstrap/test_outputs.py::test_at_the_end_of_a_job_no_instance_has_a_file_that_another_one_has",
        "jobs/test_hostile.py::test_a_torchrun_script_leaves_rank_0s_files_though_every_node_writes_them",
    ),
    5: (
        "instances of a Processing job find each other without an interface's name",
        "bootstrap/test_interfaces.py::test_where_none_is_told_the_one_that_the_host_s_name_means_wins_over_the_default_route",
        "bootstrap/test_variables.py::test_the_interface_goes_to_nccl_gloo_and_torch_s_rpc_unless_the_user_set_it",
    ),
    6: (
        "a job without an image has AWS's own of its region",
        "client/images/test_default_image.py::test_a_region_has_a_registry_of_its_own",
        "client/test_submit.py::test_a_pickle_that_the_image_cannot_read_is_refused_while_nothing_is_sent",
    ),
    7: (
        "an image's Ray of another release is not used",
        "bootstrap/test_lacking.py::test_an_image_with_another_ray_lacks_the_one_that_raysm_needs_and_says_which_it_has",
        "jobs/test_images.py::test_an_image_with_a_real_older_ray_has_the_right_one_beside_it_or_ends_in_one_sentence",
        "client/test_ray_requirement.py::test_a_job_that_requires_another_ray_is_not_prepared",
    ),
    8: (
        "a plain submit does not list a million inputs",
        "client/test_prepared.py::test_a_plain_submit_lists_few_of_a_million_inputs_and_is_not_remembered_as_done",
    ),
    9: (
        "two jobs do not write one state",
        "client/test_predecessor.py::test_a_state_that_a_running_job_writes_is_not_gone_on_with",
        "client/test_predecessor.py::test_a_job_that_is_just_ending_is_waited_for_and_that_is_said",
    ),
    10: (
        "what AWS refuses together is refused before the upload",
        "contract/test_unwritten_rules.py::test_what_breaks_a_rule_is_refused_by_the_client_and_by_the_embedded_server",
        "client/test_submit.py::test_a_folder_of_this_machine_as_output_of_aws_is_refused_before_anything_is_uploaded",
    ),
    11: (
        "a channel need not be one whose files can be mapped",
        "workloads/similarity/reading/test_npy.py::test_without_shared_mappings_a_private_one_is_taken",
        "jobs/test_hostile.py::test_a_similarity_of_a_channel_that_cannot_be_mapped_equals_float64",
    ),
    12: (
        "the command line says what accounts demand",
        "cli/test_flag_layer.py::test_a_job_in_a_vpc_with_keys_and_tags_can_be_sent_by_flags_alone",
    ),
    13: (
        "the doctor has three states, and sees what breaks first jobs",
        "client/doctor/test_permitted.py::test_who_may_not_ask_for_the_role_is_not_told_that_it_is_bad",
        "client/doctor/test_account.py::test_an_account_with_all_that_a_job_needs_is_good",
    ),
    14: (
        "the payload goes with its job, and is sealed by the call",
        "client/test_payload_place.py::test_the_payload_of_a_job_that_has_ended_is_removed_by_whoever_looks_at_it",
        "contract/test_payload.py::test_the_seal_is_that_of_the_files_as_they_are_written",
    ),
    15: (
        "nothing unfinished lies among the checkpoints, and little changes there",
        "workloads/training/checkpoint/test_step_marker.py::"
        "test_among_the_checkpoints_it_is_written_every_ten_seconds_and_says_that_it_may_be_late",
        "workloads/similarity/modes/test_full.py::test_what_grows_lies_beside_its_place_and_never_among_what_lasts",
        "local/test_checkpoints.py::test_whatever_lies_there_is_taken_unfinished_files_too",
    ),
    16: (
        "a closed connection is a loss at once, silence only after half a minute",
        "bootstrap/test_control.py::test_a_worker_that_closes_its_connection_is_lost_at_once",
        "bootstrap/test_control.py::test_a_worker_that_pauses_for_many_beats_is_silent_meanwhile_and_not_lost",
    ),
    17: (
        "costs are a range, and unknown is not 0",
        "client/costs/test_forecast.py::test_every_phase_that_is_billed_has_a_best_and_a_worst",
        "client/costs/test_bill.py::test_what_is_not_known_is_unknown_and_never_nothing",
    ),
    18: (
        "without a way to an index a job ends soon, in a sentence",
        "bootstrap/test_package_index.py::test_an_index_that_is_silent_is_given_up_in_one_sentence_with_the_remedies",
        "bootstrap/test_packages.py::"
        "test_packages_that_travelled_are_installed_without_a_word_to_the_index_and_the_log_says_how_much",
    ),
    19: (
        "reasons come without AWS's wrapper",
        "client/test_description.py::test_a_reason_is_the_jobs_own_words_without_what_the_service_puts_around_them",
    ),
    20: (
        "an instance type may be newer than botocore",
        "client/test_service_model_check.py::test_a_type_that_is_newer_than_botocore_passes_with_a_warning",
    ),
    21: (
        "errors that pass are borne, a login that expires is said, and logs are asked for seldom",
        "client/test_service.py::test_an_error_that_passes_is_known_by_its_code",
        "client/test_service.py::test_credentials_that_have_expired_are_an_error_of_its_own",
        "client/test_follow.py::test_late_lines_of_a_job_come_although_its_follow_up_runs",
    ),
    22: (
        "of spot's 120 s user code has 60",
        "request/test_job.py::test_on_spot_capacity_user_code_has_less_of_the_two_minutes_so_that_what_it_saves_reaches_s3",
        "bootstrap/test_membership.py::test_a_stop_gives_user_code_its_grace_and_ends_with_the_driver",
    ),
    23: (
        "isolated instances of Processing are not promised to reach each other",
        "client/calls/test_processing.py::"
        "test_several_isolated_instances_are_not_documented_to_reach_each_other_and_that_is_said",
    ),
    24: (
        "the interface is believed before the name; calls that go elsewhere are said",
        "bootstrap/test_address.py::test_the_interface_that_the_service_tells_is_believed_before_the_name",
        "client/doctor/test_account.py::test_calls_that_go_elsewhere_are_said_with_the_variable_to_unset",
        "contract/test_source.py::test_a_source_folder_of_very_many_files_or_bytes_is_sent_with_a_warning",
    ),
    25: (
        "PID 1 is an init, and a stop reaches the script behind it",
        "jobs/test_like_aws.py::test_a_stop_reaches_the_script_behind_tini_and_what_it_saves_then_is_there",
    ),
}
"""By number: what holds, and by which tests."""


def functions_in(path):
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("number", FINDINGS)
def test_a_finding_has_the_tests_that_hold_it(number):
    _, *tests = FINDINGS[number]
    assert tests
    for test in tests:
        file, _, name = test.partition("::")
        assert name in functions_in(TESTS / file), test


def test_no_finding_is_left_out():
    assert [*FINDINGS] == [*range(1, 26)]
