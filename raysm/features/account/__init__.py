"""What an AWS account needs: permissions, images, prices and quotas, and a doctor that checks them.

Begin with ``doctor_command.py``, ``checks.py`` and ``permissions.py``.
"""
