import pytest

from raysm.client.images.instance_types import Processor, has_cuda_13, is_arm, processor_of

X86 = ["ml.m5.large", "ml.c7i-flex.2xlarge", "ml.r8i.4xlarge", "ml.t3.medium", "ml.c6i.xlarge", "ml.x2iedn.xlarge"]
GRAVITON = ["ml.m7g.large", "ml.c7gn.xlarge", "ml.r8gd.xlarge", "ml.t4g.medium", "ml.is4gen.xlarge", "ml.c6g.4xlarge"]


@pytest.mark.parametrize("name", X86)
def test_most_types_are_x86_cpus(name):
    assert (processor_of(name), is_arm(name)) == (Processor.CPU, False)


@pytest.mark.parametrize("name", GRAVITON)
def test_an_attribute_g_is_graviton(name):
    assert (processor_of(name), is_arm(name)) == (Processor.CPU, True)


@pytest.mark.parametrize("name", ["ml.g4dn.xlarge", "ml.g6e.48xlarge", "ml.p5en.48xlarge", "ml.p6-b200.48xlarge"])
def test_families_g_and_p_have_gpus_of_nvidia(name):
    assert (processor_of(name), is_arm(name), has_cuda_13(name)) == (Processor.GPU, False, True)


@pytest.mark.parametrize("name", ["ml.g5g.xlarge", "ml.p6e-gb200.36xlarge"])
def test_some_gpus_have_arm_beside_them(name):
    assert (processor_of(name), is_arm(name)) == (Processor.GPU, True)


@pytest.mark.parametrize("name", ["ml.p2.xlarge", "ml.p3.2xlarge", "ml.p3dn.24xlarge", "ml.g3s.xlarge"])
def test_gpus_before_turing_have_no_cuda_13(name):
    assert processor_of(name) is Processor.GPU
    assert not has_cuda_13(name)


@pytest.mark.parametrize("name", ["ml.trn1.32xlarge", "ml.inf2.xlarge"])
def test_trainium_and_inferentia_are_no_gpus(name):
    assert processor_of(name) is Processor.NEURON
    assert not has_cuda_13(name)


@pytest.mark.parametrize("name", ["local", "", "ml.u-3tb1.56xlarge"])
def test_a_name_that_follows_no_rule_is_a_cpu(name):
    assert (processor_of(name), is_arm(name)) == (Processor.CPU, False)
