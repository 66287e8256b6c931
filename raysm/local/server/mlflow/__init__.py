"""SageMaker's managed MLflow: its tracking servers, each with a real MLflow behind it that nobody reaches past it.

``operations`` makes and removes them, ``process`` runs MLflow, ``endpoint`` passes signed requests on to it.
"""
