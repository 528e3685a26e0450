"""Capacity planning: what training and serving need on a machine, before the work begins."""

from metaxc.scale.machine import machine_memory
from metaxc.scale.planning import Plan, StageCost, Workload, check_memory, make_plan

__all__ = ["Plan", "StageCost", "Workload", "check_memory", "machine_memory", "make_plan"]
