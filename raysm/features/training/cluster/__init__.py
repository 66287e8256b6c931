"""Training inside the formed cluster; its public interface is ``raysm.training``."""
