"""Large data: what training and serving need, and vectors of any number of items by any number of machines."""

from metaxc.scale.deployment import DeploymentStep, Machine, Way, plan_deployment
from metaxc.scale.engines import Engine, work_here
from metaxc.scale.lance_partitions import represent_lance
from metaxc.scale.machine import machine_memory
from metaxc.scale.partitions import RepresentedFiles, represent_files
from metaxc.scale.planning import Plan, StageCost, Workload, check_memory, make_plan
from metaxc.scale.ray_engine import RayEngine
from metaxc.scale.represent_batch import RepresentBatch
from metaxc.scale.shards import find_neighbours, fit_ridge

__all__ = [
    "DeploymentStep",
    "Engine",
    "Machine",
    "Plan",
    "RayEngine",
    "RepresentBatch",
    "RepresentedFiles",
    "StageCost",
    "Way",
    "Workload",
    "check_memory",
    "find_neighbours",
    "fit_ridge",
    "machine_memory",
    "make_plan",
    "plan_deployment",
    "represent_files",
    "represent_lance",
    "work_here",
]
