// Drives franz-go for the tests: one JSON request a line on stdin, one JSON answer a line on stdout.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const deadline = 30 * time.Second

// A request: the arguments of all operations, each of which uses some of them.
type request struct {
	Operation  string
	Topic      string
	Records    []record
	Codec      string
	Acks       int
	Idempotent bool
	BatchBytes int32
	Starts     [][2]int64
	WaitMs     int
	Reader     int
	Count      int
	TimeoutMs  int
	Group      string
	Member     int
	Settings   struct{ Protocol string }
	Decisions  []decision
}

// A record as the tests write it; []byte is base64 in JSON, and nil is null.
type record struct {
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []header `json:"headers"`
	Timestamp *int64   `json:"timestamp"`
	Partition *int32   `json:"partition"`
	Offset    int64    `json:"offset"`
}

// In JSON an array: the name and the value.
type header struct {
	name  string
	value []byte
}

func (h *header) UnmarshalJSON(text []byte) error {
	var parts [2]json.RawMessage
	if err := json.Unmarshal(text, &parts); err != nil {
		return err
	}
	return errors.Join(json.Unmarshal(parts[0], &h.name), json.Unmarshal(parts[1], &h.value))
}

func (h header) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{h.name, h.value})
}

type failure struct {
	Code    int16  `json:"code"`
	Message string `json:"message"`
}

type crash struct {
	Crash string `json:"crash"`
}

type driver struct {
	bootstrap []string
	readers   map[int]*kgo.Client
	members   map[int]*member
	next      int
}

func main() {
	d := &driver{
		bootstrap: strings.Split(os.Args[1], ","),
		readers:   map[int]*kgo.Client{},
		members:   map[int]*member{},
	}
	input := bufio.NewReaderSize(os.Stdin, 1<<20)
	output := json.NewEncoder(os.Stdout)
	for {
		line, err := input.ReadBytes('\n')
		if err != nil {
			return // the test has closed it
		}
		var asked request
		answer := map[string]any{}
		if err := json.Unmarshal(line, &asked); err != nil {
			answer["error"] = crash{err.Error()}
		} else if result, err := d.handle(&asked); err != nil {
			answer["error"] = describe(err)
		} else {
			answer["result"] = result
		}
		if err := output.Encode(answer); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func describe(err error) any {
	var refused *kerr.Error
	if errors.As(err, &refused) {
		return failure{refused.Code, refused.Description}
	}
	return crash{err.Error()}
}

func (d *driver) handle(asked *request) (any, error) {
	switch asked.Operation {
	case "produce":
		return d.produce(asked)
	case "open":
		return d.open(asked)
	case "take":
		return take(d.readers[asked.Reader], asked)
	case "close":
		d.readers[asked.Reader].Close()
		delete(d.readers, asked.Reader)
		return nil, nil
	case "join":
		return d.join(asked)
	}
	if found, ok := d.members[asked.Member]; ok {
		return found.handle(asked)
	}
	return nil, fmt.Errorf("no operation %s", asked.Operation)
}

func (d *driver) number() int {
	d.next++
	return d.next
}

func (d *driver) client(options ...kgo.Opt) (*kgo.Client, error) {
	common := []kgo.Opt{
		kgo.SeedBrokers(d.bootstrap...),
		kgo.MetadataMinAge(50 * time.Millisecond),
	}
	return kgo.NewClient(append(common, options...)...)
}

var codecs = map[string]func() kgo.CompressionCodec{
	"none":   kgo.NoCompression,
	"gzip":   kgo.GzipCompression,
	"snappy": kgo.SnappyCompression,
	"lz4":    kgo.Lz4Compression,
	"zstd":   kgo.ZstdCompression,
}

var acks = map[int]kgo.Acks{0: kgo.NoAck(), 1: kgo.LeaderAck(), -1: kgo.AllISRAcks()}

func (d *driver) produce(asked *request) (any, error) {
	records := make([]*kgo.Record, len(asked.Records))
	largest := int32(0)
	for i, each := range asked.Records {
		records[i] = each.toKafka(asked.Topic)
		largest = max(largest, int32(len(each.Key)+len(each.Value)))
	}
	options := []kgo.Opt{
		kgo.RequiredAcks(acks[asked.Acks]),
		kgo.ProducerBatchCompression(codecs[asked.Codec]()),
		// The client refuses a record that does not fit into a batch; the tests want to hear the broker.
		kgo.ProducerBatchMaxBytes(max(asked.BatchBytes, largest+1024)),
		kgo.MaxBufferedRecords(len(records) + 1),
	}
	if !asked.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1))
	}
	if asked.Records[0].Partition != nil {
		options = append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	client, err := d.client(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return nil, err
	}
	positions := [][2]int64{}
	if asked.Acks != 0 {
		for _, each := range records {
			positions = append(positions, [2]int64{int64(each.Partition), each.Offset})
		}
	}
	return positions, nil
}

func (r *record) toKafka(topic string) *kgo.Record {
	found := &kgo.Record{Topic: topic, Key: r.Key, Value: r.Value}
	for _, each := range r.Headers {
		found.Headers = append(found.Headers, kgo.RecordHeader{Key: each.name, Value: each.value})
	}
	if r.Timestamp != nil {
		found.Timestamp = time.UnixMilli(*r.Timestamp)
	}
	if r.Partition != nil {
		found.Partition = *r.Partition
	}
	return found
}

func fromKafka(each *kgo.Record) record {
	timestamp := each.Timestamp.UnixMilli()
	found := record{each.Key, each.Value, []header{}, &timestamp, &each.Partition, each.Offset}
	for _, h := range each.Headers {
		found.Headers = append(found.Headers, header{h.Key, h.Value})
	}
	return found
}

func (d *driver) open(asked *request) (any, error) {
	starts := map[int32]kgo.Offset{}
	for _, start := range asked.Starts {
		starts[int32(start[0])] = kgo.NewOffset().At(start[1])
	}
	client, err := d.client(
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{asked.Topic: starts}),
		kgo.FetchMaxWait(time.Duration(asked.WaitMs)*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	number := d.number()
	d.readers[number] = client
	return number, nil
}

func take(client *kgo.Client, asked *request) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(asked.TimeoutMs)*time.Millisecond)
	defer cancel()
	found := []record{}
	for len(found) < asked.Count && ctx.Err() == nil {
		records, err := poll(ctx, client, asked.Count-len(found))
		if err != nil {
			return nil, err
		}
		for _, each := range records {
			found = append(found, fromKafka(each))
		}
	}
	return found, nil
}

// Returns no records if the time is over.
func poll(ctx context.Context, client *kgo.Client, count int) ([]*kgo.Record, error) {
	fetches := client.PollRecords(ctx, count)
	for _, failed := range fetches.Errors() {
		if ctx.Err() == nil || !errors.Is(failed.Err, ctx.Err()) {
			return nil, failed.Err
		}
	}
	return fetches.Records(), nil
}
