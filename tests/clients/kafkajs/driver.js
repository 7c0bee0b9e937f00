// Drives kafkajs for the tests: one JSON request a line on stdin, one JSON answer a line on stdout.
//
// kafkajs has no consumer without a group, so readers here use its own cluster and broker layers, one below the
// consumer: the same requests, the same decoding, no group.

'use strict'

const readline = require('readline')
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require('kafkajs')
const Cluster = require('kafkajs/src/cluster')
const defaultSocketFactory = require('kafkajs/src/network/socketFactory')
const { createLogger } = require('kafkajs/src/loggers')
const SnappyJS = require('snappyjs')
const lz4 = require('lz4-napi')
const zstd = require('@bokuweb/zstd-wasm')
const membersOf = require('./members')
const transactionsOf = require('./transactions')

const [, , bootstrap] = process.argv
const brokers = bootstrap.split(',')
const silent = () => () => {}
// As quick as tests want it, or a little more patient than kafkajs is by default.
const patient = process.argv[4] === 'patient'
const retry = patient ? { initialRetryTime: 300, retries: 10 } : { initialRetryTime: 20, retries: 5 }
const connectionTimeout = patient ? 10000 : 1000

CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => lz4.compressFrame(encoder.buffer),
  decompress: async buffer => lz4.decompressFrame(buffer),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from(zstd.compress(encoder.buffer, 3)),
  decompress: async buffer => Buffer.from(zstd.decompress(buffer)),
})

// snappy-java (hence Java's client) wraps snappy in blocks: an 8-byte magic, two versions, then length + block.
const XERIAL_MAGIC = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0])
CompressionCodecs[CompressionTypes.Snappy] = () => ({
  compress: async encoder => SnappyJS.compress(encoder.buffer),
  decompress: async buffer => {
    if (!buffer.subarray(0, 8).equals(XERIAL_MAGIC)) return SnappyJS.uncompress(buffer)
    const blocks = []
    for (let at = 16; at < buffer.length; ) {
      const size = buffer.readUInt32BE(at)
      blocks.push(SnappyJS.uncompress(buffer.subarray(at + 4, at + 4 + size)))
      at += 4 + size
    }
    return Buffer.concat(blocks)
  },
})

const codecs = { none: 0, gzip: 1, snappy: 2, lz4: 3, zstd: 4 }
const requestTimeout = Number(process.argv[3])
const kafka = new Kafka({ brokers, requestTimeout, connectionTimeout, logLevel: logLevel.NOTHING, logCreator: silent, retry })
const admin = kafka.admin({ retry })
const bytes = text => (text === null ? null : Buffer.from(text, 'base64'))
const text = buffer => (buffer === null ? null : Buffer.from(buffer).toString('base64'))

function toMessage({ key, value, headers, timestamp, partition }) {
  const message = { key: bytes(key), value: bytes(value), headers: {} }
  for (const [name, content] of headers) (message.headers[name] ||= []).push(bytes(content))
  if (timestamp !== null) message.timestamp = String(timestamp)
  if (partition !== null) message.partition = partition
  return message
}

function toRecord(partition, { key, value, headers, timestamp, offset }) {
  const list = Object.entries(headers).flatMap(([name, content]) =>
    (Array.isArray(content) ? content : [content]).map(one => [name, text(one)])
  )
  return { key: text(key), value: text(value), headers: list, timestamp: Number(timestamp), partition, offset: Number(offset) }
}

// kafkajs does not say which record went where, only the base offset of each partition's batch: so a request carries the
// records of one partition, or one record whose partition is the partitioner's choice.
function requestsFor(records, batchBytes) {
  const requests = []
  const open = new Map()
  records.forEach((record, index) => {
    const size = (record.value || '').length
    const batch = record.partition === null ? undefined : open.get(record.partition)
    if (batch && batch.size + size <= batchBytes) {
      batch.indexes.push(index)
      batch.size += size
    } else {
      const fresh = { indexes: [index], size }
      if (record.partition !== null) open.set(record.partition, fresh)
      requests.push(fresh.indexes)
    }
  })
  return requests
}

async function produce({ topic, records, codec, acks, idempotent, batchBytes }) {
  const producer = kafka.producer({ idempotent, maxInFlightRequests: 5, retry })
  await producer.connect()
  try {
    const positions = new Array(records.length).fill(null)
    const send = async indexes => {
      const answers = await producer.send({
        topic,
        acks,
        compression: codecs[codec],
        messages: indexes.map(index => toMessage(records[index])),
      })
      for (const { partition, baseOffset } of answers || []) {
        indexes.forEach((index, n) => (positions[index] = [partition, Number(baseOffset) + n]))
      }
    }
    // It keeps the order of requests only where each waits for the one before: partitions are sent to side by side.
    const last = new Map()
    for (const indexes of requestsFor(records, batchBytes)) {
      const { partition } = records[indexes[0]]
      last.set(partition, Promise.resolve(last.get(partition)).then(() => send(indexes)))
    }
    await Promise.all(last.values())
    return positions.every(position => position === null) ? [] : positions
  } finally {
    await producer.disconnect()
  }
}

class Reader {
  constructor(topic, starts, waitMs) {
    this.topic = topic
    this.positions = new Map(starts)
    this.waitMs = waitMs
    this.ready = []
    this.pending = null
    this.cluster = new Cluster({
      logger: createLogger({ level: logLevel.NOTHING, logCreator: silent }),
      socketFactory: defaultSocketFactory(),
      brokers,
      connectionTimeout: 1000,
      requestTimeout: 60000,
      enforceRequestTimeout: true,
      metadataMaxAge: 300000,
      allowAutoTopicCreation: false,
      isolationLevel: 0,
      retry,
    })
  }

  async open() {
    await this.cluster.connect()
    await this.cluster.addTargetTopic(this.topic)
  }

  async fetch() {
    const [{ leader }] = this.cluster.findTopicPartitionMetadata(this.topic)
    const broker = await this.cluster.findBroker({ nodeId: leader })
    const partitions = [...this.positions].map(([partition, fetchOffset]) => ({ partition, fetchOffset, maxBytes: 1048576 }))
    try {
      const { responses } = await broker.fetch({
        isolationLevel: 0,
        maxWaitTime: this.waitMs,
        topics: [{ topic: this.topic, partitions }],
      })
      for (const { partition, messages } of responses.flatMap(response => response.partitions)) {
        for (const message of messages) {
          // A broker may send the whole batch in which the wanted offset is.
          if (Number(message.offset) < this.positions.get(partition)) continue
          this.ready.push(toRecord(partition, message))
          this.positions.set(partition, Number(message.offset) + 1)
        }
      }
    } catch (error) {
      if (error.type !== 'OFFSET_OUT_OF_RANGE') throw error
      const [earliest] = await this.cluster.fetchTopicsOffset([
        { topic: this.topic, fromBeginning: true, partitions: [{ partition: error.partition }] },
      ])
      this.positions.set(error.partition, Number(earliest.partitions[0].offset))
    }
  }

  async take(count, timeoutMs) {
    let timer
    const timeUp = new Promise(resolve => (timer = setTimeout(() => resolve('time is up'), timeoutMs)))
    try {
      while (this.ready.length < count) {
        this.pending ||= this.fetch().finally(() => (this.pending = null))
        if ((await Promise.race([this.pending, timeUp])) === 'time is up') break
      }
    } finally {
      clearTimeout(timer)
    }
    return this.ready.splice(0, count)
  }

  async close() {
    if (this.pending) this.pending.catch(() => {})
    await this.cluster.disconnect()
  }
}

const readers = new Map()
const { members, operations: ofMembers } = membersOf(kafka)

const operations = {
  ...ofMembers,
  ...transactionsOf(kafka, members),
  produce,
  async open({ topic, starts, waitMs }) {
    const reader = new Reader(topic, starts, waitMs)
    await reader.open()
    readers.set(readers.size, reader)
    return readers.size - 1
  },
  take: ({ reader, count, timeoutMs }) => readers.get(reader).take(count, timeoutMs),
  async close({ reader }) {
    await readers.get(reader).close()
  },
  async offsets({ topic, partition }) {
    const found = (await admin.fetchTopicOffsets(topic)).find(each => each.partition === partition)
    return { earliest: Number(found.low), latest: Number(found.high) }
  },
  async offset_for_time({ topic, partition, timestamp }) {
    const found = (await admin.fetchTopicOffsetsByTimestamp(topic, timestamp)).find(each => each.partition === partition)
    // It answers with the end where there is no such record.
    const { latest } = await operations.offsets({ topic, partition })
    return Number(found.offset) === latest ? null : Number(found.offset)
  },
  async create_topic({ topic, partitions, configs }) {
    const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
    const topics = [{ topic, numPartitions: partitions, replicationFactor: 1, configEntries }]
    // It says "false" for a topic that exists, where others have the error.
    if (!(await admin.createTopics({ topics }))) throw Object.assign(new Error('exists'), { code: 36 })
  },
  delete_topic: ({ topic }) => admin.deleteTopics({ topics: [topic] }),
  topics: () => admin.listTopics(),
  async partition_count({ topic }) {
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
    return topics[0].partitions.length
  },
  create_partitions: ({ topic, total }) => admin.createPartitions({ topicPartitions: [{ topic, count: total }] }),
  async delete_records({ topic, partition, before }) {
    await admin.fetchTopicOffsets(topic) // or it would not know the partition's leader
    await admin.deleteTopicRecords({ topic, partitions: [{ partition, offset: String(before) }] })
  },
  async topic_configs({ topic }) {
    const { resources } = await admin.describeConfigs({ resources: [{ type: 2, name: topic }] })
    return Object.fromEntries(resources[0].configEntries.map(entry => [entry.configName, entry.configValue]))
  },
  alter_topic_configs({ topic, configs }) {
    const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
    return admin.alterConfigs({ resources: [{ type: 2, name: topic, configEntries }] })
  },
  async groups() {
    const { groups } = await admin.listGroups()
    return groups.map(each => each.groupId)
  },
  async describe_group({ group }) {
    const { groups } = await admin.describeGroups([group])
    return { state: groups[0].state, protocol: groups[0].protocol, members: groups[0].members.length }
  },
  async committed({ group, topic }) {
    const [found] = await admin.fetchOffsets({ groupId: group, topics: [topic] })
    return Object.fromEntries(found.partitions.map(each => [each.partition, Number(each.offset)]))
  },
  set_offsets: ({ group, topic, offsets }) =>
    admin.setOffsets({
      groupId: group,
      topic,
      partitions: offsets.map(([partition, offset]) => ({ partition, offset: String(offset) })),
    }),
  async delete_group({ group }) {
    await admin.deleteGroups([group])
  },
  async cluster() {
    const { clusterId, controller, brokers } = await admin.describeCluster()
    return { clusterId, controller, brokers: brokers.map(({ nodeId, host, port }) => [nodeId, `${host}:${port}`]) }
  },
}

function failure(error) {
  const several = error.errors || (error.partitions || error.groups || []).map(each => each.error || each)
  const cause = several[0] || error.cause || error
  const code = [cause, error].map(each => each.code).find(each => typeof each === 'number')
  return code === undefined ? { crash: error.stack } : { code, message: error.message }
}

async function main() {
  await zstd.init()
  await admin.connect()
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { operation, ...args } = JSON.parse(line)
    let answer
    try {
      answer = { result: (await operations[operation](args)) ?? null }
    } catch (error) {
      answer = { error: failure(error) }
    }
    process.stdout.write(JSON.stringify(answer) + '\n')
  }
  await admin.disconnect()
}

main().then(
  () => process.exit(0),
  error => {
    console.error(error)
    process.exit(1)
  }
)
