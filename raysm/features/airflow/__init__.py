"""Jobs as tasks of Apache Airflow: ``RaysmOperator`` sends one, ``RaysmSensor`` waits for one."""

from raysm.features.airflow.operator import RaysmOperator, RaysmSensor

__all__ = ["RaysmOperator", "RaysmSensor"]
