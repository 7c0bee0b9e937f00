"""UpdateFeatures: changes the finalized feature levels. Versions 0-2: 1 adds downgrade types and a dry run."""

from __future__ import annotations

from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.controller.features import refused
from penstock.metadata.features import KRAFT_VERSION, SUPPORTED_FEATURES
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from penstock.security.authorizer import CLUSTER, Operation

VERSIONS = (0, 2)


def handle(services: AdminServices, request: Request, message: UpdateFeaturesRequest) -> UpdateFeaturesResponse | None:
    def refusal(error: KafkaError) -> UpdateFeaturesResponse:
        return refused(message, error)

    if not request.may(Operation.ALTER, CLUSTER):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return UpdateFeaturesResponse(error_code=code, error_message=code.text)
    kraft = next((update for update in message.feature_updates if update.feature == KRAFT_VERSION), None)
    if (
        kraft is None
        or kraft.max_version_level <= services.quorum.kraft_version
        or kraft.max_version_level not in SUPPORTED_FEATURES[KRAFT_VERSION]
        or not services.quorum.is_active
    ):
        services.forwarding.forward(
            request,
            lambda controller: controller.update_features(message, services.quorum.voters.node_ids),
            refusal,
            about=(f"{each.feature}={each.max_version_level}" for each in message.feature_updates),
        )
        return None
    _upgrade_quorum(services, request, message, kraft)
    return None


def _upgrade_quorum(
    services: AdminServices, request: Request, message: UpdateFeaturesRequest, kraft: FeatureUpdateKey
) -> None:
    """Let the quorum upgrade its own version (kraft.version), then pass the rest to the controller."""
    answer = request.park()
    rest = message
    if message.validate_only:
        others = [update for update in message.feature_updates if update is not kraft]
        rest = UpdateFeaturesRequest(timeout_ms=message.timeout_ms, feature_updates=others, validate_only=True)

    def done(outcome: UpdateFeaturesResponse | KafkaError) -> None:
        answer(refused(message, outcome) if isinstance(outcome, KafkaError) else outcome)

    def begun(error: KafkaError | None) -> None:
        if error is not None:
            answer(refused(message, error))
        else:
            voters = services.quorum.voters.node_ids
            services.quorum.submit(lambda controller: controller.update_features(rest, voters), done)

    services.quorum.upgrade_kraft_version(kraft.max_version_level, validate_only=message.validate_only, done=begun)
