"""The steps of a history: numbers that were drawn, turned into requests on what is there just then.

A step names things by number, counted round: the third reservation, the fifth workload. So a history keeps
its sense when a part of it is left out.
"""

from tests.histories.steps_contracts import ContractSteps
from tests.histories.steps_hosts import HostSteps
from tests.histories.steps_people import PeopleSteps
from tests.histories.steps_workloads import WorkloadSteps


class Steps(ContractSteps, WorkloadSteps, HostSteps, PeopleSteps):
    """Makes the calls; each is None where there is nothing to do it to."""
