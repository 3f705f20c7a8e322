"""Which images VMs may start from."""

from dataclasses import dataclass
from uuid import UUID

from compute.models import VmTemplate
from nodes.models import GpuModel
from openrelay.errors import Invalid
from openrelay.ids import parse_id


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


def _suits(template: VmTemplate, named: set[UUID], model_id: UUID, manufacturer: str) -> bool:
    if named:
        return model_id in named
    return not template.manufacturer or template.manufacturer.lower() == manufacturer.lower()
