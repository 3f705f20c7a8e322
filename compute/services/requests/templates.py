"""Which images VMs may start from."""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from compute.models import VmTemplate
from nodes.models import GpuModel
from openrelay.core.errors import Invalid
from openrelay.core.ids import parse_id
from openrelay.core.rows import Reading


@dataclass(frozen=True, slots=True)
class OfferedTemplate:
    """A template, with the ids of the GPU models it suits; None for all."""

    template: VmTemplate
    model_ids: list[UUID] | None


def offered() -> list[OfferedTemplate]:
    """Every template that new VMs may start from, in their order. Three queries."""
    models = list(GpuModel.objects.order_by("name", "pk").values_list("pk", "manufacturer"))
    found = []
    for template in VmTemplate.objects.offered().prefetch_related("gpu_models"):
        named = {model.pk for model in template.gpu_models.all()}
        limited = bool(named or template.manufacturer)
        suited = [pk for pk, maker in models if _suits(template, named, pk, maker)]
        found.append(OfferedTemplate(template, suited if limited else None))
    return found


def template_for(
    template_id: str | None, *, model_id: UUID | None, gpu_count: int, image_url: object = None
) -> VmTemplate | None:
    """The template that a request names, or None when it names none.

    Raises Invalid (VALIDATION_ERROR) when there is none of that id, when the request names an image beside
    it, and when it does not suit the GPU model; one that suits only some wants the model to be named.
    """
    if template_id is None:
        return None
    pk = parse_id(template_id)
    template: VmTemplate | None = VmTemplate.objects.offered().filter(pk=pk).first() if pk else None
    if template is None:
        raise Invalid("templateId names no VM template. GET /v1/vm-templates lists them.")
    if image_url:
        raise Invalid("templateId and imageUrl both say what to start from. Give one of them.")
    if template.requires_gpu and not gpu_count:
        raise Invalid(f"templateId: {template.name} is for VMs with GPUs. Choose another, or ask for GPUs.")
    named = set(template.gpu_models.values_list("pk", flat=True))
    if not gpu_count or not (named or template.manufacturer):
        return template
    if model_id is None:
        raise Invalid(f"templateId: {template.name} suits some GPU models only. Name one by gpuModelId.")
    model = GpuModel.objects.get(pk=model_id)
    if not _suits(template, named, model.pk, model.manufacturer):
        raise Invalid(f"templateId: {template.name} does not suit {model.name}. Choose another of either.")
    return template


def default_template(*, model_id: UUID | None, gpu_count: int) -> Reading:
    """Reads the id of the template that a VM starts from which names nothing to start from: the default one,
    where it is offered and suits the VM; one that suits only some GPU models, where the model is named.
    """
    return Reading(_DEFAULT, (gpu_count, gpu_count, model_id, model_id))


def starts_from(named: VmTemplate | None, details: Mapping[str, object], default: UUID | None) -> UUID | None:
    """The id of the template that a VM starts from; None for one that names an image, or that no template
    suits: its node chooses.
    """
    if named is not None:
        return named.pk
    return None if details.get("image_url") else default


# As `_suits` has it.
_DEFAULT = """(
    SELECT template.id FROM compute_vmtemplate template
    WHERE template.is_default AND template.offered
      AND (%s::int > 0 OR NOT template.requires_gpu)
      AND (%s::int = 0 OR CASE
        WHEN EXISTS (SELECT FROM compute_vmtemplate_gpu_models WHERE vmtemplate_id = template.id)
        THEN EXISTS (SELECT FROM compute_vmtemplate_gpu_models
                     WHERE vmtemplate_id = template.id AND gpumodel_id = %s::uuid)
        ELSE template.manufacturer = '' OR lower(template.manufacturer) = (
            SELECT lower(manufacturer) FROM nodes_gpumodel WHERE id = %s::uuid)
        END)
)"""


def _suits(template: VmTemplate, named: set[UUID], model_id: UUID, manufacturer: str) -> bool:
    if named:
        return model_id in named
    return not template.manufacturer or template.manufacturer.lower() == manufacturer.lower()
