"""What the reservation operations take and answer, for the OpenAPI schema."""

from openrelay.api.lists import ListQuery
from openrelay.api.schema.book import Body, Code, Description, Operation
from openrelay.api.schema.examples import (
    BROKER,
    H100,
    LUMEN,
    NODE,
    PLATFORM,
    RENDER,
    RESERVATION,
    TRAINER,
    UNITS,
)
from openrelay.api.schema.shapes import (
    an_id,
    flag,
    ids,
    integer,
    listed,
    one_of,
    ref,
    shape,
    text,
    time,
    words,
)
from reservations.api import serializers

SHAPES = {
    "NodeReservationStatus": one_of(
        ("active", "cancelled", "expired", "needs-review", "pending"),
        "`pending`: its term begins later. `active`: in its term. `needs-review`: the node's GPUs changed "
        "since it was made; it grants nothing and withholds its units from everyone until an operator "
        "re-affirms it. `expired`, `cancelled`: over.",
    ),
    "NodeReservation": shape(
        "GPU units of one node, kept for some organizations for a term.",
        {
            "id": an_id("The reservation's id."),
            "nodeId": an_id("The node that it is on."),
            "status": ref("NodeReservationStatus", "Its status at the moment of the answer."),
            "reservedUnitIds": words("The PCI addresses of its units."),
            "allowedOrgIds": ids("The audience: who may place on its units. The operators always may."),
            "startsAt": time("When its term begins."),
        },
        {
            "endsAt": time("When its term ends; absent: when it is cancelled."),
            "releasedUnitIds": words("Those of its units that are on the spot market now."),
            "managingOrgIds": ids("Who may release and reclaim on the owner's behalf."),
            "contractRef": text("The contract behind it."),
            "reason": text("Why it was made."),
            "topologyGen": integer("The topology generation of the node that it is pinned to."),
            "createdAt": time("When it was made."),
            "updatedAt": time("When what it says last changed."),
            "terminated": ids("After a reclaim: the spot VMs that were ended."),
            "skipped": ids("After a reclaim: the VMs on these units that were left running, being ordinary."),
            "wouldTerminate": ids("On a dry run: the spot VMs that would be ended."),
            "wouldSkip": ids("On a dry run: the VMs that would be left running."),
        },
    ),
    "NodeGpuUnitItem": shape(
        "A GPU unit: the smallest thing that is reserved, claimed or sold.",
        {
            "id": text("Its PCI address."),
            "allocClass": text("`vfio-group` (for VMs), `device-request` (for pods), or another."),
            "gpuModelId": an_id("The GPU model of the unit."),
            "sellableGpus": integer("How many GPUs are sold with it."),
            "reservable": flag("Whether the hardware can be reserved; a reserved or claimed unit still can."),
            "state": one_of(
                ("free", "claimed"),
                "`claimed` when a workload has the unit or its guest may still be on it, else `free`.",
            ),
        },
        {
            "gpuModelName": text("The model's name."),
            "notReservableReason": text("Why it cannot be reserved."),
            "claimedBy": text("The VM or pod that has it, as `vm:<id>`."),
            "reservationId": an_id("The reservation that holds it now."),
            "released": flag("Whether that reservation has it on the spot market."),
        },
    ),
    "ReclaimSpotWorkloadsResult": shape(
        "Who was ended, or on a dry run would be.",
        {"terminated": ids("Spot VMs.")},
        {"skipped": ids("Ordinary VMs within the same reach, left running.")},
    ),
}

_UNIT_IDS = "GPU units by PCI address; one that is named twice counts once."
_REASON = "Why, for the audit log."

BODIES = {
    serializers.CreateReservation: Body(
        "CreateNodeReservationRequest",
        "What to reserve, for whom, and when.",
        {
            "unitIds": _UNIT_IDS,
            "allowedOrgIds": "The audience; the platform's operators are added.",
            "managingOrgIds": "Who may release and reclaim on the owner's behalf; gives no right to place.",
            "startsAt": "When it begins; absent: now. Up to 60 s ago reads as now.",
            "endsAt": "When it ends; absent: when it is cancelled.",
            "contractRef": "The contract behind it.",
            "reason": "Why, for the audit log and whoever reads the reservation.",
        },
    ),
    serializers.AmendReservation: Body(
        "UpdateNodeReservationRequest",
        "What to change, all of it or nothing. A field that is left out stays as it is.",
        {
            "endsAt": 'The new end; "" or null: open-ended.',
            "allowedOrgIds": "The new audience. What an organization runs that is left out runs on.",
            "managingOrgIds": "The new managers; `[]`: none.",
            "reaffirm": "Pin the reservation to the hardware as it is now.",
        },
    ),
    serializers.ReservationUnits: Body(
        "ReservationUnitsRequest", "Which units.", {"unitIds": _UNIT_IDS, "reason": _REASON}
    ),
    serializers.ReclaimUnits: Body(
        "ReservationReclaimRequest",
        "Which units to take back.",
        {
            "unitIds": _UNIT_IDS,
            "dryRun": "Only say who would be ended and who left; nothing changes.",
            "reason": _REASON,
        },
    ),
    serializers.ReclaimSpot: Body(
        "ReclaimSpotWorkloadsRequest",
        "Which spot VMs to end.",
        {
            "unitIds": "Only those on these units; absent: all in reach. An empty list is refused.",
            "dryRun": "Only say who would be ended and who left; nothing changes.",
            "reason": _REASON,
        },
    ),
}

CODES = {
    "UNKNOWN_ORG": Code(
        400,
        "an organization id names nothing; the sentence names it.",
        f"There is no organization {LUMEN}. Check the ids; nothing was changed.",
    ),
    "UNKNOWN_UNIT": Code(
        400,
        "the node has no such unit; the sentence names it.",
        f"The node has no GPU unit {UNITS[3]}. List its units to see what there is.",
    ),
    "UNIT_NOT_RESERVABLE": Code(
        400,
        "a unit cannot be reserved: it is gone, not for sale, or of a class that cannot be. Names unit and "
        "reason.",
        f"Cannot be reserved: {UNITS[3]}: it is not for sale. Choose other units.",
    ),
    "NODE_NOT_SINGLE_CLASS": Code(
        400,
        "the node sells units of more than one class.",
        "No unit of this node can be reserved: its node sells units of more than one class "
        "(device-request, vfio-group). Ask its owner to sell units of one class.",
    ),
    "UNIT_NOT_IN_RESERVATION": Code(
        400,
        "a named unit is not one of the reservation's.",
        f"The reservation does not hold {UNITS[3]}. It holds {UNITS[0]}, {UNITS[1]}.",
    ),
    "RESERVATION_OVERLAP": Code(
        409,
        "another reservation holds a named unit at some time of that term.",
        f"Another reservation holds {UNITS[0]} during that term. See reservation {RESERVATION}. "
        "Choose other units or another term.",
    ),
    "ORG_IN_USE": Code(
        409,
        "the organization is in reservations in force, manages some, or has enrolled nodes; names them.",
        f"Lumen Labs cannot be deleted: it is in or manages reservations in force ({RESERVATION}). Have an "
        "operator cancel the reservations or take the organization out of them.",
    ),
    "RESERVATION_ENDED": Code(
        409,
        "the reservation was cancelled or has expired.",
        "The reservation is expired. A reservation that has ended cannot be changed. Make a new one instead.",
    ),
    "RESERVATION_NOT_ACTIVE": Code(
        409,
        "the reservation is pending or needs review.",
        "The reservation is needs-review; only an active one can release or reclaim units.",
    ),
    "TOPOLOGY_UNITS_MISSING": Code(
        409,
        "it cannot be re-affirmed: reserved units are gone or changed class; names them.",
        f"The reservation cannot be re-affirmed: {UNITS[1]} is gone. Restore the hardware, or cancel the "
        "reservation and make a new one.",
    ),
}

_RESERVATION = {
    "id": RESERVATION,
    "nodeId": NODE,
    "status": "active",
    "reservedUnitIds": [UNITS[0], UNITS[1]],
    "releasedUnitIds": [],
    "allowedOrgIds": [PLATFORM, LUMEN],
    "managingOrgIds": [BROKER],
    "startsAt": "2026-11-02T10:00:00.123456Z",
    "endsAt": "2027-02-01T00:00:00Z",
    "contractRef": "MSA-2026-114",
    "reason": "Training, first quarter",
    "topologyGen": 2,
    "createdAt": "2026-11-02T10:00:00.123456Z",
    "updatedAt": "2026-11-02T10:00:00.123456Z",
}

OPERATIONS = {
    "list_node_reservations": Operation(
        tag="reservations",
        summary="List a node's reservations",
        description="Lists every reservation of the node, newest first, ended ones too.",
        query=ListQuery,
        answer=listed("NodeReservation"),
        example=[_RESERVATION],
    ),
    "create_node_reservation": Operation(
        tag="reservations",
        summary="Reserve GPU units",
        description="Keeps units of the node for an audience for a term. What runs on them is left "
        "running; once it stops, only the audience places there. No unit is ever held twice at one time.",
        body=serializers.CreateReservation,
        body_example={
            "unitIds": [UNITS[0], UNITS[1]],
            "allowedOrgIds": [LUMEN],
            "managingOrgIds": [BROKER],
            "endsAt": "2027-02-01T00:00:00Z",
            "contractRef": "MSA-2026-114",
            "reason": "Training, first quarter",
        },
        answer=ref("NodeReservation"),
        example=_RESERVATION,
        errors=(
            "UNKNOWN_ORG",
            "UNKNOWN_UNIT",
            "UNIT_NOT_RESERVABLE",
            "NODE_NOT_SINGLE_CLASS",
            "NODE_DECOMMISSIONED",
            "RESERVATION_OVERLAP",
            "FEATURE_DISABLED",
        ),
        takes_idempotency_key=True,
    ),
    "get_node_reservation": Operation(
        tag="reservations",
        summary="Show a reservation",
        description="Shows one reservation as it is at this instant.",
        answer=ref("NodeReservation"),
        example={**_RESERVATION, "releasedUnitIds": [UNITS[1]]},
    ),
    "update_node_reservation": Operation(
        tag="reservations",
        summary="Change or re-affirm a reservation",
        description="Changes the end, the audience or the managers, or re-affirms a reservation that needs "
        "review on the hardware as it is now; any mix of them, all or nothing. The start is fixed.",
        body=serializers.AmendReservation,
        body_example={"endsAt": "2027-05-01T00:00:00Z", "reaffirm": True},
        answer=ref("NodeReservation"),
        example={
            **_RESERVATION,
            "endsAt": "2027-05-01T00:00:00Z",
            "topologyGen": 3,
            "updatedAt": "2026-12-01T08:00:00Z",
        },
        errors=(
            "UNKNOWN_ORG",
            "RESERVATION_OVERLAP",
            "RESERVATION_ENDED",
            "TOPOLOGY_UNITS_MISSING",
            "FEATURE_DISABLED",
        ),
    ),
    "delete_org": Operation(
        tag="organizations",
        summary="Delete an organization",
        description="Deletes the organization. Its people and keys have no access to it from then on, and "
        "its VMs and pods, stopped ones too, are terminated with the reason "
        "`auto_stopped_organization_deleted` within a minute. Its usage and its audit log are kept, and its "
        "slug is not given to another. The platform's own organization cannot be deleted.",
        answer=None,
        errors=("ORG_IN_USE", "INVALID_STATE"),
    ),
    "cancel_node_reservation": Operation(
        tag="reservations",
        summary="Cancel a reservation",
        description="Ends a pending or active reservation, or one that needs review, at this instant. What "
        "runs on its units is left running.",
        answer=ref("NodeReservation"),
        example={**_RESERVATION, "status": "cancelled", "updatedAt": "2026-12-01T08:00:00Z"},
        errors=("RESERVATION_ENDED",),
    ),
    "release_reservation_units": Operation(
        tag="reservations",
        summary="Release units to the spot market",
        description="Sells idle reserved units a second time, at tier spot only. They stay the "
        "reservation's: its audience may place on them still, and they can be taken back at any moment. "
        "For operators, the node's owner, and organizations that manage this very reservation. A unit "
        "already released is left so.",
        body=serializers.ReservationUnits,
        body_example={"unitIds": [UNITS[1]], "reason": "Idle until Monday"},
        answer=ref("NodeReservation"),
        example={**_RESERVATION, "releasedUnitIds": [UNITS[1]]},
        errors=("UNIT_NOT_IN_RESERVATION", "RESERVATION_ENDED", "RESERVATION_NOT_ACTIVE"),
    ),
    "reclaim_reservation_units": Operation(
        tag="reservations",
        summary="Take units back from the spot market",
        description="Moves the boundary back and ends every spot VM with a claim on a named unit, in one "
        "step; one that spans a named and another unit goes whole. Ordinary VMs are left running and "
        "listed as skipped. With `dryRun` the same is decided, said, and not done. For operators, the "
        "node's owner, and organizations that manage this very reservation. Safe to repeat.",
        body=serializers.ReclaimUnits,
        body_example={"unitIds": [UNITS[1]], "dryRun": True},
        answer=ref("NodeReservation"),
        example={
            **_RESERVATION,
            "releasedUnitIds": [UNITS[1]],
            "wouldTerminate": [RENDER],
            "wouldSkip": [],
        },
        errors=("UNIT_NOT_IN_RESERVATION", "RESERVATION_ENDED", "RESERVATION_NOT_ACTIVE"),
    ),
    "list_reservation_units": Operation(
        tag="reservations",
        summary="List a node's GPU units",
        description="Lists the node's GPU units: what each is, who claims it, and which reservation holds "
        "it now.",
        answer=listed("NodeGpuUnitItem"),
        example=[
            {
                "id": UNITS[0],
                "allocClass": "vfio-group",
                "gpuModelId": H100,
                "gpuModelName": "NVIDIA H100 SXM5 80 GB",
                "sellableGpus": 1,
                "reservable": True,
                "state": "claimed",
                "claimedBy": f"vm:{TRAINER}",
                "reservationId": RESERVATION,
                "released": False,
            },
            {
                "id": UNITS[3],
                "allocClass": "vfio-group",
                "gpuModelId": H100,
                "gpuModelName": "NVIDIA H100 SXM5 80 GB",
                "sellableGpus": 1,
                "reservable": False,
                "notReservableReason": "it is not for sale",
                "state": "free",
            },
        ],
    ),
    "list_org_reservations": Operation(
        tag="reservations",
        summary="List an organization's reservations",
        description="Lists the reservations that are kept for the organization or that it manages, and "
        "that have not ended. Empty where reservations are not enabled for it.",
        query=ListQuery,
        answer=listed("NodeReservation"),
        example=[_RESERVATION],
    ),
    "reclaim_spot_workloads": Operation(
        tag="provider",
        summary="End spot VMs on a node",
        description="Ends spot VMs without moving any reservation's boundary. The node's owner reaches all "
        "of them there; an organization that manages reservations of the node, those on released units of "
        "the ones that are active. Ordinary VMs are never touched. With `dryRun`, `terminated` lists who "
        "would go.",
        body=serializers.ReclaimSpot,
        body_example={"unitIds": [UNITS[1]], "reason": "Maintenance"},
        answer=ref("ReclaimSpotWorkloadsResult"),
        example={"terminated": [RENDER], "skipped": []},
        errors=("UNKNOWN_UNIT",),
    ),
}

DESCRIPTION = Description(
    operations=OPERATIONS,
    shapes=SHAPES,
    bodies=BODIES,
    codes=CODES,
    tags={
        "reservations": "GPU units kept for an audience for a term, and their second sale.",
        "provider": "For the owners of nodes.",
    },
)
