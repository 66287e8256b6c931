"""Many trials on one formed cluster: Ray Tune places and watches them, Optuna chooses what they try."""
