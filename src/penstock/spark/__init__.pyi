"""What type checkers see of the names that are imported when they are used."""

from penstock.pipelines import Pipeline as Pipeline
from penstock.spark.progress.listener import watch as watch
from penstock.spark.progress.query_progress import QueryProgress as QueryProgress
from penstock.spark.progress.topic import queries as queries
from penstock.spark.runtime.session import session as session
