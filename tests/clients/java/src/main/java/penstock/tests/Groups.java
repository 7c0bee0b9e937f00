package penstock.tests;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;

/** What the Admin client asks and changes of consumer groups. */
final class Groups {
    private final Admin admin;

    Groups(Admin admin) {
        this.admin = admin;
    }

    void register(Map<String, Driver.Operation> operations) {
        operations.put("groups", this::list);
        operations.put("describe_group", this::describe);
        operations.put("committed", this::committed);
        operations.put("alter_offsets", this::alterOffsets);
        operations.put("delete_offsets", this::deleteOffsets);
        operations.put("remove_members", this::removeMembers);
        operations.put("delete_group", request -> admin.deleteConsumerGroups(List.of(name(request))).all().get());
    }

    private static String name(JsonNode request) {
        return request.get("group").asText();
    }

    private static Set<String> texts(JsonNode list) {
        Set<String> texts = new HashSet<>();
        list.forEach(each -> texts.add(each.asText()));
        return texts;
    }

    private Object list(JsonNode request) throws Exception {
        Set<GroupState> states = new HashSet<>();
        texts(request.get("states")).forEach(each -> states.add(GroupState.parse(each)));
        Set<GroupType> types = new HashSet<>();
        texts(request.get("types")).forEach(each -> types.add(GroupType.parse(each)));
        ListGroupsOptions options = ListGroupsOptions.forConsumerGroups().inGroupStates(states).withTypes(types);
        Map<String, Object> listed = new TreeMap<>();
        for (GroupListing each : admin.listGroups(options).all().get()) {
            listed.put(each.groupId(), List.of(
                each.groupState().map(GroupState::toString).orElse("?"), each.type().map(GroupType::toString).orElse("?")));
        }
        return listed;
    }

    private Object describe(JsonNode request) throws Exception {
        ConsumerGroupDescription group =
            admin.describeConsumerGroups(List.of(name(request))).all().get().get(name(request));
        List<Object> members = new ArrayList<>();
        group.members().forEach(member -> {
            List<Object> partitions = new ArrayList<>();
            member.assignment().topicPartitions().forEach(each -> partitions.add(List.of(each.topic(), each.partition())));
            members.add(Map.of(
                "clientId", member.clientId(),
                "instance", member.groupInstanceId().orElse(""),
                "partitions", partitions,
                "upgraded", String.valueOf(member.upgraded().orElse(null))));
        });
        return Map.of(
            "state", group.groupState().toString(),
            "type", group.type().toString(),
            "assignor", group.partitionAssignor(),
            "coordinator", group.coordinator().id(),
            "members", members);
    }

    private Object committed(JsonNode request) throws Exception {
        Map<String, Object> offsets = new HashMap<>();
        admin.listConsumerGroupOffsets(name(request)).partitionsToOffsetAndMetadata().get()
            .forEach((partition, offset) -> offsets.put(partition.toString(), offset.offset()));
        return offsets;
    }

    private static TopicPartition partition(JsonNode pair) {
        return new TopicPartition(pair.get(0).asText(), pair.get(1).asInt());
    }

    private Object alterOffsets(JsonNode request) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        request.get("offsets").forEach(
            each -> offsets.put(partition(each), new OffsetAndMetadata(each.get(2).asLong(), "by an administrator")));
        return admin.alterConsumerGroupOffsets(name(request), offsets).all().get();
    }

    private Object deleteOffsets(JsonNode request) throws Exception {
        Set<TopicPartition> partitions = new HashSet<>();
        request.get("partitions").forEach(each -> partitions.add(partition(each)));
        return admin.deleteConsumerGroupOffsets(name(request), partitions).all().get();
    }

    /** Those with the given names, or all if none is given. */
    private Object removeMembers(JsonNode request) throws Exception {
        List<MemberToRemove> members = texts(request.get("instances")).stream().map(MemberToRemove::new).toList();
        RemoveMembersFromConsumerGroupOptions options = members.isEmpty()
            ? new RemoveMembersFromConsumerGroupOptions()
            : new RemoveMembersFromConsumerGroupOptions(members);
        return admin.removeMembersFromConsumerGroup(name(request), options).all().get();
    }
}
