package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const pollTime = 100 * time.Millisecond

// A member of a consumer group or of a share group, polled by the test.
type member struct {
	client *kgo.Client
	topic  string
	// Of a share group: what was polled, until the test has decided about it.
	held map[position]*kgo.Record

	mutex    sync.Mutex
	assigned map[int32]bool
	refused  error
}

type position struct {
	partition int32
	offset    int64
}

type decision struct {
	Partition int32
	Offset    int64
	How       string
}

var statuses = map[string]kgo.AckStatus{
	"accept":  kgo.AckAccept,
	"release": kgo.AckRelease,
	"reject":  kgo.AckReject,
	"renew":   kgo.AckRenew,
}

func (d *driver) join(asked *request) (any, error) {
	found := &member{topic: asked.Topic, held: map[position]*kgo.Record{}, assigned: map[int32]bool{}}
	options := []kgo.Opt{kgo.ConsumeTopics(asked.Topic), kgo.FetchMaxWait(pollTime)}
	if asked.Settings.Protocol == "share" {
		options = append(options, kgo.ShareGroup(asked.Group), kgo.ShareAckCallback(found.acknowledged))
	} else {
		options = append(options,
			kgo.ConsumerGroup(asked.Group),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.DisableAutoCommit(),
			kgo.HeartbeatInterval(300*time.Millisecond),
			kgo.OnPartitionsAssigned(found.given),
			kgo.OnPartitionsRevoked(found.taken),
			kgo.OnPartitionsLost(found.taken),
		)
	}
	if asked.Settings.Protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	}
	client, err := d.client(options...)
	if err != nil {
		return nil, err
	}
	found.client = client
	number := d.number()
	d.members[number] = found
	return number, nil
}

func (m *member) given(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for _, partition := range partitions[m.topic] {
		m.assigned[partition] = true
	}
}

func (m *member) taken(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for _, partition := range partitions[m.topic] {
		delete(m.assigned, partition)
	}
}

func (m *member) acknowledged(_ *kgo.Client, results kgo.ShareAckResults) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.refused == nil {
		m.refused = results.Error()
	}
}

func (m *member) handle(asked *request) (any, error) {
	switch asked.Operation {
	case "poll":
		return m.poll()
	case "acquire":
		return m.acquire()
	case "commit":
		return m.commit()
	case "assignment":
		m.mutex.Lock()
		defer m.mutex.Unlock()
		return slices.AppendSeq([]int32{}, maps.Keys(m.assigned)), nil
	case "decide":
		return m.decide(asked.Decisions)
	case "leave":
		m.client.Close()
		return nil, nil
	}
	return nil, fmt.Errorf("a member has no operation %s", asked.Operation)
}

func (m *member) poll() (any, error) {
	records, err := m.records()
	found := [][]any{}
	for _, each := range records {
		found = append(found, []any{each.Partition, each.Offset, each.Value})
	}
	return found, err
}

func (m *member) acquire() (any, error) {
	records, err := m.records()
	found := [][]any{}
	for _, each := range records {
		found = append(found, []any{each.Partition, each.Offset, each.Value, each.DeliveryCount()})
		m.held[position{each.Partition, each.Offset}] = each
	}
	return found, err
}

func (m *member) records() ([]*kgo.Record, error) {
	ctx, cancel := context.WithTimeout(context.Background(), pollTime)
	defer cancel()
	return poll(ctx, m.client, 0)
}

func (m *member) commit() (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	if err := m.client.CommitUncommittedOffsets(ctx); err != nil {
		return nil, err
	}
	offsets := map[int32]int64{}
	for partition, committed := range m.client.CommittedOffsets()[m.topic] {
		offsets[partition] = committed.Offset
	}
	return offsets, nil
}

// Acknowledges records that were polled; answers when the broker has persisted that.
func (m *member) decide(decisions []decision) (any, error) {
	for _, each := range decisions {
		at := position{each.Partition, each.Offset}
		found, ok := m.held[at]
		if !ok {
			return nil, fmt.Errorf("offset %d of partition %d was not polled", each.Offset, each.Partition)
		}
		found.Ack(statuses[each.How])
		if each.How != "renew" {
			delete(m.held, at)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	if err := m.client.FlushAcks(ctx); err != nil {
		return nil, err
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return nil, m.refused
}
