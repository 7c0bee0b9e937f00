"""SCRAM users and delegation tokens: the controller's decisions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from penstock.controller.scram import alter_user_scram_credentials
from penstock.controller.tokens import TokenHandlers
from penstock.metadata.delta import MetadataDelta, ReplayFailed
from penstock.metadata.image import EMPTY_IMAGE, MetadataImage, scram_record, token_record
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.declaration import Message
from penstock.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from penstock.protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from penstock.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from penstock.protocol.messages.metadata_records import (
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from penstock.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from penstock.security.credentials import (
    ScramCredential,
    ScramMechanism,
    ScramUser,
    new_credential,
    salted_password,
)
from penstock.security.principal import Principal
from penstock.security.tokens import DelegationToken, TokenHmacs, token_hmac
from penstock.settings.sasl import SaslSettings

SHA_512 = ScramMechanism.SCRAM_SHA_512
ALICE, BOB, EVE = (Principal("User", name) for name in ("alice", "bob", "eve"))
NOW = 1_000_000
DAY = 86_400_000
SETTINGS = SaslSettings(delegation_token_secret_key="secret")


def replayed(image: MetadataImage, records: list[Message]) -> MetadataImage:
    delta = MetadataDelta(image)
    delta.replay_all(records)
    return delta.apply(image.offset + len(records), 1, NOW)


def upsertion(name: str = "alice", mechanism: int = SHA_512, iterations: int = 4096) -> ScramCredentialUpsertion:
    salted = salted_password(SHA_512, "secret", b"salt", 4096)
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted
    )


def altered(
    image: MetadataImage,
    *upsertions: ScramCredentialUpsertion,
    deletions: tuple[tuple[str, int], ...] = (),
) -> tuple[MetadataImage, list[tuple[str, int]]]:
    request = AlterUserScramCredentialsRequest(
        upsertions=list(upsertions),
        deletions=[ScramCredentialDeletion(name=name, mechanism=mechanism) for name, mechanism in deletions],
    )
    result = alter_user_scram_credentials(image, request)
    answers = [(each.user, int(each.error_code)) for each in result.response.results]
    return replayed(image, result.records), answers


# -- SCRAM users ------------------------------------------------------------------------------------------------------


def test_a_user_is_created_and_removed() -> None:
    image, answers = altered(EMPTY_IMAGE, upsertion())
    assert answers == [("alice", 0)]
    user = ScramUser("alice", SHA_512)
    assert image.scram_credentials[user] == new_credential(SHA_512, "secret", b"salt")
    image, answers = altered(image, deletions=(("alice", SHA_512),))
    assert answers == [("alice", 0)]
    assert not image.scram_credentials


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (upsertion(name=""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_credentials_that_are_refused(change: ScramCredentialUpsertion, code: ErrorCode) -> None:
    image, answers = altered(EMPTY_IMAGE, change)
    assert answers == [(change.name, code)]
    assert not image.scram_credentials


def test_a_user_appears_once_in_a_request() -> None:
    image, answers = altered(EMPTY_IMAGE, upsertion("bob"), upsertion(), deletions=(("alice", SHA_512),))
    assert sorted(answers) == [("alice", ErrorCode.DUPLICATE_RESOURCE), ("bob", 0)]
    assert list(image.scram_credentials) == [ScramUser("bob", SHA_512)]


def test_only_what_exists_can_be_removed() -> None:
    assert altered(EMPTY_IMAGE, deletions=(("alice", SHA_512),))[1] == [("alice", ErrorCode.RESOURCE_NOT_FOUND)]


def test_records_that_contradict_the_image() -> None:
    with pytest.raises(ReplayFailed):
        replayed(EMPTY_IMAGE, [RemoveUserScramCredentialRecord(name="alice", mechanism=SHA_512)])
    with pytest.raises(ReplayFailed):
        replayed(EMPTY_IMAGE, [UserScramCredentialRecord(name="alice", mechanism=9)])
    with pytest.raises(ReplayFailed):
        replayed(EMPTY_IMAGE, [RemoveDelegationTokenRecord(token_id="x")])


def test_a_request_for_too_many_users_is_refused_as_a_whole() -> None:
    changes = [ScramCredentialDeletion(name=f"user-{number}", mechanism=SHA_512) for number in range(10_001)]
    request = AlterUserScramCredentialsRequest(deletions=changes)
    assert code_of(lambda: alter_user_scram_credentials(EMPTY_IMAGE, request)) is ErrorCode.POLICY_VIOLATION


def test_many_credentials_are_replayed_one_by_one() -> None:
    """When each record copied all the others, this took minutes."""
    count = 30_000
    credential = ScramCredential(b"salt", b"key", b"key", 4096)
    users = [scram_record(ScramUser(f"user-{number}", SHA_512), credential) for number in range(count)]
    one = DelegationToken("", ALICE, ALICE, (), NOW, NOW + DAY, NOW + DAY)
    tokens = [token_record(one._replace(token_id=f"token-{number}")) for number in range(count)]
    image = replayed(EMPTY_IMAGE, [*users, *tokens])
    assert (len(image.scram_credentials), len(image.delegation_tokens)) == (count, count)
    gone: list[Message] = [
        *(RemoveUserScramCredentialRecord(name=each.name, mechanism=SHA_512) for each in users),
        *(RemoveDelegationTokenRecord(token_id=each.token_id) for each in tokens),
    ]
    after = replayed(image, gone)
    assert not after.scram_credentials and not after.delegation_tokens
    assert len(image.scram_credentials) == len(image.delegation_tokens) == count, "an image does not change"


# -- delegation tokens ------------------------------------------------------------------------------------------------


def created(image: MetadataImage = EMPTY_IMAGE, **fields: object) -> tuple[MetadataImage, bytes]:
    fields.setdefault("max_lifetime_ms", -1)
    request = CreateDelegationTokenRequest(**fields)  # type: ignore[arg-type]
    result = TokenHandlers(image, SETTINGS, NOW).create(request, ALICE, b"0123456789abcdef")
    return replayed(image, result.records), result.response.hmac


def renewer(principal: Principal) -> CreatableRenewers:
    return CreatableRenewers(principal_type=principal.type, principal_name=principal.name)


def test_a_token() -> None:
    image, hmac = created(renewers=[renewer(BOB)])
    (token,) = image.delegation_tokens.values()
    assert (token.owner, token.requester, token.renewers) == (ALICE, ALICE, (BOB,))
    assert (token.issued_at_ms, token.expires_at_ms, token.max_at_ms) == (NOW, NOW + DAY, NOW + 7 * DAY)
    assert hmac == token_hmac("secret", token.token_id)


@pytest.mark.parametrize("name", ["", "x" * 32_763])
def test_principals_that_no_record_can_carry(name: str) -> None:
    assert code_of(lambda: created(renewers=[renewer(Principal("User", name))])) is ErrorCode.INVALID_REQUEST
    other = name or "\ud800"
    act = partial(created, owner_principal_type="User", owner_principal_name=other)
    assert code_of(act) is ErrorCode.INVALID_REQUEST


def test_a_token_has_only_so_many_renewers() -> None:
    image, _ = created(renewers=[renewer(Principal("User", f"{number:05d}")) for number in range(6_000)])
    assert len(next(iter(image.delegation_tokens.values())).renewers) == 6_000
    many = [renewer(Principal("User", f"{number:05d}")) for number in range(7_000)]
    assert code_of(lambda: created(renewers=many)) is ErrorCode.INVALID_REQUEST


def test_tokens_are_found_by_their_hmacs_while_others_come_and_go() -> None:
    hmacs = TokenHmacs()
    first = DelegationToken("first", ALICE, ALICE, (), NOW, NOW + DAY, NOW + DAY)
    second = first._replace(token_id="second")
    computed = {each.token_id: token_hmac("secret", each.token_id) for each in (first, second)}

    def found(*tokens: DelegationToken, secret: str = "secret") -> list[DelegationToken | None]:
        table = {each.token_id: each for each in tokens}
        return [hmacs.find(table, secret, each) for each in computed.values()]

    assert found() == [None, None]
    assert found(first, second) == [first, second]
    renewed = second._replace(expires_at_ms=NOW)
    assert found(renewed) == [None, renewed]
    assert found(first, renewed, secret="other") == [None, None]
    assert found(first) == [first, None]


def test_a_short_token_of_another_owner() -> None:
    image, _ = created(owner_principal_type="User", owner_principal_name="bob", max_lifetime_ms=1000)
    (token,) = image.delegation_tokens.values()
    assert (token.owner, token.requester, token.expires_at_ms, token.max_at_ms) == (BOB, ALICE, NOW + 1000, NOW + 1000)


def test_a_snapshot_keeps_users_and_tokens() -> None:
    image, _ = created(altered(EMPTY_IMAGE, upsertion())[0], renewers=[renewer(BOB)])
    copy = replayed(EMPTY_IMAGE, list(image.to_records()))
    assert copy.same_content(image)
    assert copy.delegation_tokens and copy.scram_credentials


def code_of(act: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        act()
    return caught.value.code


def test_tokens_are_renewed_by_owners_and_renewers_up_to_the_end() -> None:
    image, hmac = created(renewers=[renewer(BOB)], max_lifetime_ms=2 * DAY)
    later = TokenHandlers(image, SETTINGS, NOW + DAY // 2)
    request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=-1)
    assert later.renew(request, BOB).response.expiry_timestamp_ms == NOW + DAY // 2 + DAY
    short = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=1000)
    assert later.renew(short, ALICE).response.expiry_timestamp_ms == NOW + DAY // 2 + 1000
    image = replayed(image, later.renew(request, BOB).records)
    last = TokenHandlers(image, SETTINGS, NOW + DAY + DAY // 4)
    assert last.renew(request, ALICE).response.expiry_timestamp_ms == NOW + 2 * DAY
    assert code_of(lambda: later.renew(request, EVE)) is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    over = TokenHandlers(image, SETTINGS, NOW + 2 * DAY + 1)
    assert code_of(lambda: over.renew(request, ALICE)) is ErrorCode.DELEGATION_TOKEN_EXPIRED
    unknown = RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=-1)
    assert code_of(lambda: later.renew(unknown, ALICE)) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_tokens_are_ended() -> None:
    image, hmac = created()
    tokens = TokenHandlers(image, SETTINGS, NOW)
    soon = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=5)
    assert tokens.expire(soon, ALICE).response.expiry_timestamp_ms == NOW + 5
    now = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1)
    assert code_of(lambda: tokens.expire(now, BOB)) is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert not replayed(image, tokens.expire(now, ALICE).records).delegation_tokens


def test_expired_tokens_are_swept() -> None:
    image, _ = created()
    assert not TokenHandlers(image, SETTINGS, NOW + DAY).sweep().records
    assert not replayed(image, TokenHandlers(image, SETTINGS, NOW + DAY + 1).sweep().records).delegation_tokens


def test_without_a_secret_there_are_no_tokens() -> None:
    image, hmac = created()
    tokens = TokenHandlers(image, SaslSettings(), NOW)
    disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    request = CreateDelegationTokenRequest(max_lifetime_ms=-1)
    assert code_of(lambda: tokens.create(request, ALICE, b"0" * 16)) is disabled
    assert code_of(lambda: tokens.renew(RenewDelegationTokenRequest(hmac=hmac), ALICE)) is disabled
    assert code_of(lambda: tokens.expire(ExpireDelegationTokenRequest(hmac=hmac), ALICE)) is disabled


def test_renewers_are_users() -> None:
    stranger = CreatableRenewers(principal_type="Group", principal_name="x")
    assert code_of(lambda: created(renewers=[stranger])) is ErrorCode.INVALID_PRINCIPAL_TYPE
