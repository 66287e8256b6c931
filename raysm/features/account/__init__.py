"""What an AWS account needs: permissions, images, prices and quotas, and a doctor that checks them.

Begin with ``doctor/checks.py`` and ``permissions.py``.
"""
