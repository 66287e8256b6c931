"""What raysm may have to be allowed on AWS: the calls of the client by the user, and of the service by the job's role.

What flows in are the names of one account's things, what flows out are policies of IAM, as narrow as they can be said.
Which action an operation needs, and on which kind of resource, is from the Service Authorization Reference,
https://docs.aws.amazon.com/service-authorization/latest/reference/. Nothing of it was seen on AWS.
"""

from raysm.client.permissions.grant import ROLE_ARN, Grant, Names, policy, resources_of
from raysm.client.permissions.role import ROLE, SERVICE, trust
from raysm.client.permissions.user import UNGUARDED, USER, covered

__all__ = [
    "ROLE",
    "ROLE_ARN",
    "SERVICE",
    "UNGUARDED",
    "USER",
    "Grant",
    "Names",
    "covered",
    "policy",
    "resources_of",
    "trust",
]
