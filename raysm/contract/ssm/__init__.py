"""The protocol of SSM's data channel, as state machines without I/O: what both ends agree on.

AWS documents none of it. The facts are those of the public sources of its two ends, github.com/aws/amazon-ssm-agent
and github.com/aws/session-manager-plugin, and of github.com/xtaci/smux.
"""
