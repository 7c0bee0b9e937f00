// Transactional producers, each with the one transaction it has open.

'use strict'

module.exports = (kafka, members) => {
  const producers = new Map()
  const open = new Map()
  return {
    async new_producer({ producer, id }) {
      const retry = { initialRetryTime: 50, retries: 30 }
      producers.set(producer, kafka.producer({ transactionalId: id, idempotent: true, maxInFlightRequests: 1, retry }))
      await producers.get(producer).connect()
    },
    async begin({ producer }) {
      open.set(producer, await producers.get(producer).transaction())
    },
    async send({ producer, topic, values }) {
      const messages = values.map(value => ({ value: Buffer.from(value, 'base64') }))
      await open.get(producer).send({ topic, messages })
    },
    // Of a member: what it has read.
    async send_offsets({ producer, member, group }) {
      const { topic } = members.get(member)
      const partitions = members.get(member).offsets()
      await open.get(producer).sendOffsets({ consumerGroupId: group, topics: [{ topic, partitions }] })
    },
    commit_transaction: ({ producer }) => open.get(producer).commit(),
    abort_transaction: ({ producer }) => open.get(producer).abort(),
    end_producer: ({ producer }) => producers.get(producer).disconnect(),
  }
}
