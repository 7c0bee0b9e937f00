// Members of consumer groups, by number. kafkajs calls back with what it reads; it is kept until somebody polls.

'use strict'

const text = buffer => (buffer === null ? null : Buffer.from(buffer).toString('base64'))

const MOMENT_MS = 50
const moment = () => new Promise(resolve => setTimeout(resolve, MOMENT_MS))

class Member {
  constructor(kafka, group, topic, settings) {
    this.topic = topic
    this.read = []
    this.positions = new Map()
    this.assigned = []
    this.given = []
    this.joining = true
    this.leaving = false
    this.acknowledged = 0
    this.consumer = kafka.consumer({
      groupId: group,
      sessionTimeout: 6000,
      heartbeatInterval: 300,
      maxWaitTimeInMs: 100,
      // A commit that kafkajs tries again goes out under the generation of that moment, though what it commits was read
      // in an older one, when the partition was perhaps another's since: it must fail instead.
      retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 0, restartOnFailure: async () => !this.leaving },
      ...settings,
    })
    this.consumer.on('consumer.rebalancing', () => (this.assigned = []))
    this.consumer.on('consumer.group_join', ({ payload }) => {
      this.assigned = payload.memberAssignment[topic] || []
      // What was read but not committed is read again, by whomever.
      this.read = []
      this.positions.clear()
      this.given.push([this.given.length, this.assigned])
    })
    // A consumer that crashes stops, and joins again if it restarts. Only one that runs fetches.
    this.consumer.on('consumer.stop', () => (this.joining = true))
    this.consumer.on('consumer.crash', ({ payload }) => (this.joining = payload.restart))
    this.consumer.on('consumer.fetch_start', () => (this.joining = false))
    this.consumer.on('consumer.commit_offsets', () => (this.acknowledged += 1))
  }

  async start() {
    await this.consumer.connect()
    await this.consumer.subscribe({ topics: [this.topic], fromBeginning: true })
    // Returns when the group has let it in, or when the first attempt has failed.
    await this.consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        this.read.push([partition, Number(message.offset), text(message.value)])
      },
    })
  }

  async poll() {
    if (!this.read.length) await moment()
    const polled = this.read.splice(0)
    for (const [partition, offset] of polled) this.positions.set(partition, offset + 1)
    return polled
  }

  offsets() {
    return [...this.positions].map(([partition, offset]) => ({ topic: this.topic, partition, offset: String(offset) }))
  }

  // commitOffsets() also returns when the consumer has stopped meanwhile, without an answer of the broker and without an
  // error (Runner.commitOffsets). Only the event tells that the broker has answered.
  async commit() {
    const offsets = this.offsets()
    if (offsets.length) {
      const before = this.acknowledged
      await this.consumer.commitOffsets(offsets)
      if (this.acknowledged === before) throw new Error('the consumer has stopped, and nothing is committed')
    }
    return Object.fromEntries(offsets.map(({ partition, offset }) => [partition, Number(offset)]))
  }

  // kafkajs does not stop a consumer that is joining (Runner.stop() returns at once unless it runs; tulios/kafkajs#1147
  // and #1639). It would join after disconnect(), send heartbeats, and keep partitions that nobody polls any more.
  async leave() {
    while (this.joining) await moment()
    this.leaving = true
    await this.consumer.disconnect()
  }
}

module.exports = kafka => {
  const members = new Map()
  const operations = {
    async join({ group, topic, settings }) {
      const member = new Member(kafka, group, topic, settings)
      await member.start()
      members.set(members.size, member)
      return members.size - 1
    },
    poll: ({ member }) => members.get(member).poll(),
    commit: ({ member }) => members.get(member).commit(),
    assignment: ({ member }) => members.get(member).assigned,
    given: ({ member }) => members.get(member).given,
    leave: ({ member }) => members.get(member).leave(),
  }
  return { members, operations }
}
