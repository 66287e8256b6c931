"""The question about permissions that clients ask before they send a job, and that moto does not answer.

The embedded SageMaker has no account: every role exists, SageMaker may assume it, and it may do everything.
"""

import contextlib
import json
import re
import uuid
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from raysm.local.server.moto_services import MotoServices

__all__ = ["IAM", "answer"]

IAM = re.compile(r"Credential=[^,]*/iam/aws4_request")
"""How the authorisation of a request to IAM reads."""

NAMESPACE = "https://iam.amazonaws.com/doc/2010-05-08/"
ROLE = re.compile(r"arn:aws[\w-]*:iam::\d{12}:role(/.*)?/([\w+=,.@-]{1,64})")
TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}


def answer(form: bytes, moto: MotoServices) -> bytes | None:
    """Return the answer to SimulatePrincipalPolicy, everything allowed; None leaves the request to moto.

    The role that it asks about is made, so that the next question, whom it trusts, has an answer too.
    """
    fields = parse_qs(form.decode(errors="replace"))
    if fields.get("Action") != ["SimulatePrincipalPolicy"]:
        return None
    role = ROLE.fullmatch(fields.get("PolicySourceArn", [""])[0])
    if role:
        client = moto.client("iam")
        # Clients ask before every job.
        with contextlib.suppress(client.exceptions.EntityAlreadyExistsException):
            client.create_role(RoleName=role[2], Path=f"{role[1] or ''}/", AssumeRolePolicyDocument=json.dumps(TRUST))
    actions = [values[0] for name, values in fields.items() if name.startswith("ActionNames.member.")]
    # Without ResourceArns, AWS simulates for all.
    resources = [values[0] for name, values in fields.items() if name.startswith("ResourceArns.member.")] or ["*"]
    members = "".join(
        f"<member><EvalActionName>{escape(action)}</EvalActionName><EvalResourceName>{escape(resource)}"
        "</EvalResourceName><EvalDecision>allowed</EvalDecision></member>"
        for action in actions
        for resource in resources
    )
    return (
        f'<SimulatePrincipalPolicyResponse xmlns="{NAMESPACE}"><SimulatePrincipalPolicyResult>'
        f"<IsTruncated>false</IsTruncated><EvaluationResults>{members}</EvaluationResults>"
        f"</SimulatePrincipalPolicyResult><ResponseMetadata><RequestId>{uuid.uuid4()}</RequestId></ResponseMetadata>"
        "</SimulatePrincipalPolicyResponse>"
    ).encode()
