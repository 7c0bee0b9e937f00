// Writes one record with each of the logins on stdin (a JSON array), and prints the offset or the error of each.

'use strict'

const { Kafka, logLevel } = require('kafkajs')

async function write({ bootstrap, topic, value, ssl, sasl }) {
  const provider = sasl && sasl.mechanism === 'oauthbearer'
  const kafka = new Kafka({
    brokers: [bootstrap],
    ssl: ssl || undefined,
    sasl: provider ? { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: sasl.token }) } : sasl || undefined,
    logLevel: logLevel.NOTHING,
    logCreator: () => () => {},
    retry: { initialRetryTime: 20, retries: 5 },
  })
  const producer = kafka.producer({ allowAutoTopicCreation: false })
  try {
    await producer.connect()
    const [answer] = await producer.send({ topic, acks: -1, messages: [{ value }] })
    return Number(answer.baseOffset)
  } catch (error) {
    return `${error.name}: ${error.message}`
  } finally {
    await producer.disconnect()
  }
}

async function main() {
  const chunks = []
  for await (const chunk of process.stdin) chunks.push(chunk)
  const answers = []
  for (const each of JSON.parse(Buffer.concat(chunks))) answers.push(await write(each))
  console.log(JSON.stringify(answers))
}

main()
